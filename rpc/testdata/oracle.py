"""Reads hex-encoded messages, one a line, and says what python3's json makes of each."""
import json
import sys

sys.setrecursionlimit(10000)


class Number(str):
    """A number as it was written."""


def read(body):
    doc = json.loads(body, parse_int=Number, parse_float=Number)
    params = doc.get("params") if isinstance(doc, dict) else None
    params = params if isinstance(params, dict) else {}
    kind = {Number: "number", str: "string"}.get(type(doc["id"]), "null") if "id" in doc else "none"
    text = lambda v: v if type(v) is str else ""
    return {"method": text(doc["method"]), "name": text(params.get("name")), "uri": text(params.get("uri")),
            "id_kind": kind, "id": doc.get("id") or ""}


for line in sys.stdin:
    try:
        answer = read(bytes.fromhex(line.strip()))
    except Exception as e:
        answer = {"refused": str(e)}
    print(json.dumps(answer), flush=True)
