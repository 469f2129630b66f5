package llm

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Usage is a reply's token usage as the provider reports it. Fresh, Cached and Created add up to the input:
// billed in full, read from the cache, written to it. Long is the part of Created that is cached for an hour,
// which some providers charge more for.
type Usage struct{ Fresh, Cached, Created, Long, Output int64 }

// MaxTokens bounds each count of a reply: no model reads or writes that much.
const MaxTokens = 1_000_000_000

// UsageKeys are the names of the usage members in a shape.
type UsageKeys struct {
	Model, Object string // the members of a reply, or of its message or response, that name the model and hold the counts
	Input, Output string
	MoreInput     []string // further counts of input that Input does not include
	MoreOutput    []string // further counts of output that Output does not include
	Details       string   // the member with the details of the input
	Cached        []string // in the details or beside the input; the first that is present counts
	Created       []string
	Long          []string // the part cached for an hour, in the details
	InputIsFresh  bool     // cached and created input are not part of the input
	InList        bool     // a stream may be a list of replies; the last counts in it are those of all
	Finish        string   // the member of an element of the reply's list that is set in its last event
}

// UsageScanner reads the usage of a reply while it is forwarded. It buffers a few values, never the reply.
type UsageScanner struct {
	keys   UsageKeys
	last   []string // types of the events that end a reply
	values valueScanner
	model  string
	found  bool
	ended  bool

	// The counts as the shape reports them. A stream reports some at its start and some at its end; the
	// last one counts.
	input, cached, created, long, output int64
	moreInput, moreOutput                [maxMoreCounts]int64 // by MoreInput and MoreOutput
}

const maxMoreCounts = 2

// NewUsageScanner returns a scanner for replies of a wire shape.
func NewUsageScanner(w *Wire) *UsageScanner {
	u := &UsageScanner{keys: w.Usage, last: w.LastEvents}
	u.values.names = &u.keys
	return u
}

// Write reads a chunk of a document: of the reply, or of one event's data.
func (u *UsageScanner) Write(p []byte) { u.values.scan(p) }

// EndDocument ends the document.
func (u *UsageScanner) EndDocument() {
	if name := jsonscan.DecodeString(bytes.TrimSpace(u.values.model)); name != "" {
		u.model = name
	}
	kind, finish := jsonscan.DecodeString(bytes.TrimSpace(u.values.kind)), jsonscan.DecodeString(bytes.TrimSpace(u.values.finish))
	u.ended = u.ended || slices.Contains(u.last, kind) || finish != ""
	if fields, err := jsonscan.FieldsOf(u.values.usage); err == nil && len(fields.All()) > 0 {
		u.found = true
		u.addCounts(fields)
	}
	u.values = valueScanner{names: &u.keys}
}

// Model is the model that the reply names; "" if none.
func (u *UsageScanner) Model() string { return u.model }

// HasEnded says whether an event came that ends the reply.
func (u *UsageScanner) HasEnded() bool { return u.ended }

// Usage is the usage reported so far; false if none was.
func (u *UsageScanner) Usage() (Usage, bool) {
	out := Usage{Fresh: u.input, Cached: u.cached, Created: u.created, Long: min(u.long, u.created), Output: u.output}
	if !u.keys.InputIsFresh {
		out.Fresh = max(0, u.input-u.cached-u.created)
	}
	for i := range maxMoreCounts {
		out.Fresh, out.Output = min(MaxTokens, out.Fresh+u.moreInput[i]), min(MaxTokens, out.Output+u.moreOutput[i])
	}
	return out, u.found
}

func (u *UsageScanner) addCounts(f jsonscan.Fields) {
	var details jsonscan.Fields
	if raw, ok := f.Get(u.keys.Details); ok {
		details, _ = jsonscan.FieldsOf(raw)
	}
	readCount(&u.input, []string{u.keys.Input}, f)
	readCount(&u.output, []string{u.keys.Output}, f)
	readCount(&u.cached, u.keys.Cached, details, f)
	readCount(&u.created, u.keys.Created, details, f)
	readCount(&u.long, u.keys.Long, details)
	for i := range u.keys.MoreInput {
		readCount(&u.moreInput[i], u.keys.MoreInput[i:i+1], f)
	}
	for i := range u.keys.MoreOutput {
		readCount(&u.moreOutput[i], u.keys.MoreOutput[i:i+1], f)
	}
}

// readCount reads the first count that is present. A value that is negative or not a number is skipped.
func readCount(into *int64, keys []string, places ...jsonscan.Fields) {
	for _, f := range places {
		for _, key := range keys {
			raw, _ := f.Get(key)
			n, err := strconv.ParseFloat(string(raw), 64)
			if (err == nil || errors.Is(err, strconv.ErrRange)) && n >= 0 {
				*into = int64(math.Round(min(n, MaxTokens)))
				return
			}
		}
	}
}

const (
	maxValueDepth = 3        // nesting depth of the buffered values
	maxValueBytes = 16 << 10 // size limit of a buffered value
	maxKeyBytes   = 16       // no relevant key is longer
)

// valueScanner reads a JSON document in chunks and buffers some of its values: its type at the top, the model
// and the usage, at the top or one level down in "message" or "response", or in the elements of a list, and why a
// candidate ended. It validates nothing: the values are parsed strictly afterwards.
type valueScanner struct {
	names              *UsageKeys
	kind, model, usage []byte
	finish             []byte // in an element of a list at the top

	depth             int
	isObject          [maxValueDepth + 1]bool
	keys              [maxValueDepth + 1][]byte
	inString, escaped bool
	inKey             bool    // the current string is a key
	atKey             bool    // a key or its colon comes next
	into              *[]byte // the buffer of the current value
	level             int     // the depth of that value
}

func (v *valueScanner) scan(p []byte) {
	from := 0 // start of the part to buffer
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case v.inString:
			i = v.skipString(p, i)
		case c == '"':
			v.inString = true
			if v.inKey = v.atKey; v.inKey {
				v.keys[v.depth] = v.keys[v.depth][:0]
			}
		case c == '{', c == '[':
			v.depth++
			if v.atKey = c == '{' && v.depth <= maxValueDepth; v.depth <= maxValueDepth {
				v.isObject[v.depth] = c == '{'
			}
		case c == '}', c == ']', c == ',':
			if v.into != nil && v.level == v.depth {
				v.appendValue(p[from:i])
				v.into = nil
			}
			if c != ',' {
				v.depth = max(0, v.depth-1)
			}
			v.atKey = c == ',' && v.depth >= 1 && v.depth <= maxValueDepth && v.isObject[v.depth]
		case c == ':' && v.atKey:
			v.atKey = false
			if v.into == nil { // a buffered value is copied whole
				if v.into = v.valueOfKey(); v.into != nil {
					*v.into, v.level, from = nil, v.depth, i+1
				}
			}
		}
	}
	if v.into != nil {
		v.appendValue(p[from:])
	}
}

// skipString skips the bytes of a string from p[i] and returns the index of the last one.
func (v *valueScanner) skipString(p []byte, i int) int {
	start := i
	for i < len(p) && (v.escaped || p[i] != '"') {
		v.escaped = !v.escaped && p[i] == '\\'
		i++
	}
	v.inString = i == len(p)
	if v.inKey {
		name, had := p[start:i], v.keys[v.depth]
		v.keys[v.depth] = append(had, name[:min(len(name), maxKeyBytes-len(had))]...)
	}
	return i
}

var usageParents = []string{"message", "response"}

// valueOfKey is the buffer for the value of the last key; nil if it is not needed.
func (v *valueScanner) valueOfKey() *[]byte {
	if v.depth == 3 {
		if v.names.Finish != "" && string(v.keys[3]) == v.names.Finish && v.isObject[1] && !v.isObject[2] {
			return &v.finish
		}
		return nil
	}
	inList := v.names.InList && !v.isObject[1]
	if v.depth == 2 && !inList && !slices.Contains(usageParents, string(v.keys[1])) {
		return nil
	}
	switch string(v.keys[v.depth]) {
	case v.names.Model:
		return &v.model
	case v.names.Object:
		return &v.usage
	case "type":
		if v.depth == 1 {
			return &v.kind
		}
	}
	return nil
}

func (v *valueScanner) appendValue(p []byte) {
	if len(*v.into)+len(p) > maxValueBytes {
		*v.into, v.into = nil, nil
		return
	}
	*v.into = append(*v.into, p...)
}
