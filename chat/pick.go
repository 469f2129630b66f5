package chat

import "bytes"

const (
	pickedDepth = 2        // how deep the values stand that are picked
	pickedBytes = 16 << 10 // the longest value that is picked
	pickedKey   = 16       // no key that matters is longer
)

// picker reads a JSON document in passing, in whatever pieces it comes, and keeps two of its
// values: "model" and "usage", at the top or one level down in "message" or "response". It checks
// nothing: what it keeps is read strictly afterwards.
type picker struct {
	model, usage []byte

	depth           int
	object          [pickedDepth + 1]bool
	keys            [pickedDepth + 1][]byte
	quoted, escaped bool
	naming          bool    // the string that is being read is a key
	atKey           bool    // a key is due, or its colon
	into            *[]byte // the value that is being kept
	level           int     // and the depth it stands at
}

func (k *picker) reset() { *k = picker{} }

func (k *picker) write(p []byte) {
	from := 0 // of what is being kept
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case k.quoted:
			i = k.inString(p, i)
		case c == '"':
			k.quoted = true
			if k.naming = k.atKey; k.naming {
				k.keys[k.depth] = k.keys[k.depth][:0]
			}
		case c == '{', c == '[':
			k.depth++
			if k.atKey = c == '{' && k.depth <= pickedDepth; k.depth <= pickedDepth {
				k.object[k.depth] = c == '{'
			}
		case c == '}', c == ']', c == ',':
			if k.into != nil && k.level == k.depth {
				k.keep(p[from:i])
				k.into = nil
			}
			if c != ',' {
				k.depth = max(0, k.depth-1)
			}
			k.atKey = c == ',' && k.depth >= 1 && k.depth <= pickedDepth && k.object[k.depth]
		case c == ':' && k.atKey:
			k.atKey = false
			if k.into == nil { // what is being kept is kept whole
				if k.into = k.wanted(); k.into != nil {
					*k.into, k.level, from = nil, k.depth, i+1
				}
			}
		}
	}
	if k.into != nil {
		k.keep(p[from:])
	}
}

// inString passes the bytes of a string from p[i], and returns the last it passed.
func (k *picker) inString(p []byte, i int) int {
	start := i
	for i < len(p) && (k.escaped || p[i] != '"') {
		k.escaped = !k.escaped && p[i] == '\\'
		i++
	}
	k.quoted = i == len(p)
	if k.naming {
		name, had := p[start:i], k.keys[k.depth]
		k.keys[k.depth] = append(had, name[:min(len(name), pickedKey-len(had))]...)
	}
	return i
}

// wanted is where the value of the key at hand is kept; nil where it is not.
func (k *picker) wanted() *[]byte {
	if k.depth == 2 && !bytes.Equal(k.keys[1], []byte("message")) && !bytes.Equal(k.keys[1], []byte("response")) {
		return nil
	}
	switch string(k.keys[k.depth]) {
	case "model":
		return &k.model
	case "usage":
		return &k.usage
	}
	return nil
}

func (k *picker) keep(p []byte) {
	if len(*k.into)+len(p) > pickedBytes {
		*k.into, k.into = nil, nil
		return
	}
	*k.into = append(*k.into, p...)
}
