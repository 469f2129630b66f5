package prunerd

import (
	"math"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// args are the members of an object of arguments, all of which its schema requires. The first
// mistake stays; what is read after it means nothing.
type args struct {
	path   string // of the object, with a dot; "" at the top
	fields jsonscan.Fields
	err    error
}

// readArgs opens an object that has these members, each of them, and no other.
func readArgs(raw []byte, path string, members ...string) (*args, error) {
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
			return nil, badArgument(path+clip(f.Key), "there is no such argument")
		}
	}
	for _, m := range members {
		if _, ok := fields.Get(m); !ok {
			return nil, badArgument(path+m, "is missing")
		}
	}
	return &args{path: path, fields: fields}, nil
}

func (a *args) refuse(key, problem string) {
	if a.err == nil {
		a.err = badArgument(a.path+key, problem)
	}
}

func (a *args) raw(key string) []byte {
	raw, _ := a.fields.Get(key)
	return raw
}

func (a *args) text(key string) string {
	raw := a.raw(key)
	if raw[0] != '"' {
		a.refuse(key, "must be a string")
	}
	return jsonscan.TextOf(raw)
}

func (a *args) flag(key string) bool {
	raw := string(a.raw(key))
	if raw != "true" && raw != "false" {
		a.refuse(key, "must be true or false")
	}
	return raw == "true"
}

// ratio is a number from 0 to 1.
func (a *args) ratio(key string) float64 {
	n, ok := number(a.raw(key))
	if !ok || n < 0 || n > 1 {
		a.refuse(key, "must be a number from 0 to 1")
	}
	return n
}

// integer is a whole number of at least low. One that no int can hold is the largest that can.
func (a *args) integer(key string, low int) int {
	n, ok := integer(a.raw(key))
	if !ok || n < low {
		a.refuse(key, "must be an integer of at least "+strconv.Itoa(low))
	}
	return n
}

func number(raw []byte) (float64, bool) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	n, _ := strconv.ParseFloat(string(raw), 64) // one out of range is infinite, and has its sign
	return n, true
}

// integer reads a number without a fraction: to JSON Schema 3.0 and 3e0 are as good as 3.
func integer(raw []byte) (int, bool) {
	if n, err := strconv.Atoi(string(raw)); err == nil {
		return n, true
	}
	n, ok := number(raw)
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
