"""Models over HTTP: answers, traces, the page, and live training."""
