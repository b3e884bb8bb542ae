"""``python -m seq2see``."""

from seq2see.cli import main

if __name__ == "__main__":
    main()
