package prunerd

import (
	"math"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// args are the members of an object of arguments, all of which are required. err is the first problem;
// values read after it mean nothing.
type args struct {
	path   string // of the object, with a dot; "" at the top
	fields jsonscan.Fields
	err    error
}

// parseArgs reads an object that must have exactly these members.
func parseArgs(raw []byte, path string, members ...string) (*args, error) {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	self := path
	if self == "" {
		self = "arguments"
	} else {
		path += "."
	}
	if jsonscan.New(raw, 0).Kind() != '{' {
		return nil, badArgument(self, "must be an object")
	}
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return nil, badArgument(self, err.Error())
	}
	for _, f := range fields.All() {
		if !slices.Contains(members, f.Key) {
			return nil, badArgument(path+fault.Clip(f.Key), "there is no such argument")
		}
	}
	for _, m := range members {
		if _, ok := fields.Get(m); !ok {
			return nil, badArgument(path+m, "is missing")
		}
	}
	return &args{path: path, fields: fields}, nil
}

func (a *args) reject(key, problem string) {
	if a.err == nil {
		a.err = badArgument(a.path+key, problem)
	}
}

func (a *args) rawArg(key string) []byte {
	raw, _ := a.fields.Get(key)
	return raw
}

func (a *args) stringArg(key string) string {
	raw := a.rawArg(key)
	if raw[0] != '"' {
		a.reject(key, "must be a string")
	}
	return jsonscan.DecodeString(raw)
}

func (a *args) boolArg(key string) bool {
	raw := string(a.rawArg(key))
	if raw != "true" && raw != "false" {
		a.reject(key, "must be true or false")
	}
	return raw == "true"
}

// ratioArg reads a number from 0 to 1.
func (a *args) ratioArg(key string) float64 {
	n, ok := parseNumber(a.rawArg(key))
	if !ok || n < 0 || n > 1 {
		a.reject(key, "must be a number from 0 to 1")
	}
	return n
}

// integerArg reads a whole number of at least low. One beyond the range of int is clamped.
func (a *args) integerArg(key string, low int) int {
	n, ok := parseInteger(a.rawArg(key))
	if !ok || n < low {
		a.reject(key, "must be an integer of at least "+strconv.Itoa(low))
	}
	return n
}

func parseNumber(raw []byte) (float64, bool) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	n, _ := strconv.ParseFloat(string(raw), 64) // out of range is ±Inf
	return n, true
}

// parseInteger reads a number without a fraction: for JSON Schema 3.0 and 3e0 are integers.
func parseInteger(raw []byte) (int, bool) {
	if n, err := strconv.Atoi(string(raw)); err == nil {
		return n, true
	}
	n, ok := parseNumber(raw)
	switch {
	case !ok || n != math.Trunc(n):
		return 0, false
	case n >= math.MaxInt:
		return math.MaxInt, true
	case n <= math.MinInt:
		return math.MinInt, true
	}
	return int(n), true
}
