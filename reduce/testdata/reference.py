"""The mask, straight from the contract: one JSON document a line in, the masked one out."""
import json, sys, unicodedata

def joined(a, b):  # would a cut between a and b split what a reader sees as one?
    return a == "\u200d" or b in "\u200c\u200d\uff9e\uff9f" or "\U0001f3fb" <= b <= "\U0001f3ff" or unicodedata.category(b)[0] == "M"

def mask(v, most, head, tail):
    if isinstance(v, dict):
        return {k: mask(x, most, head, tail) for k, x in v.items()}
    if isinstance(v, list):
        return [mask(x, most, head, tail) for x in v]
    if not isinstance(v, str) or len(v) <= most:
        return v
    h, t = head, len(v) - tail
    while 0 < h < len(v) and joined(v[h - 1], v[h]): h -= 1
    while 0 < t < len(v) and joined(v[t - 1], v[t]): t += 1
    return v[:h] + f"\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars={len(v)} head={h} tail={len(v) - t}] ...\n" + v[t:]

for line in sys.stdin:
    case = json.loads(line, parse_float=lambda digits: 0.5)  # a number is not for us to read
    print(json.dumps(mask(case["doc"], case["max"], case["head"], case["tail"])))
