"""The peer of ``seq2see serve``: the same model behind a handler as anybody would write it, without batching."""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from seq2see.seq2seq import load


class Question(BaseModel):
    """A text to answer."""

    text: str


def main() -> None:
    """Serve on a free port of loopback and print the address; ``threads`` makes the handler a plain function."""
    model = load("dates")
    model("1845-01-05")
    app = FastAPI()

    def answer(question: Question) -> dict[str, str]:
        return {"input": question.text, "output": model(question.text)}

    async def answer_in_loop(question: Question) -> dict[str, str]:
        return answer(question)

    # FastAPI runs a plain function in a pool of threads, a coroutine in the loop itself.
    app.post("/predict")(answer if sys.argv[1:] == ["threads"] else answer_in_loop)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
