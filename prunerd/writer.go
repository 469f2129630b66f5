package prunerd

import (
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// jsonWriter appends JSON, objects member by member and arrays element by element.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) beginObject() { w.b = append(w.b, '{') }
func (w *jsonWriter) endObject()   { w.b = append(w.b, '}') }

// separate writes the comma before a member or element that is not the first.
func (w *jsonWriter) separate() {
	if c := w.b[len(w.b)-1]; c != '{' && c != '[' {
		w.b = append(w.b, ',')
	}
}

func (w *jsonWriter) key(key string) {
	w.separate()
	w.b = append(jsonscan.AppendQuoted(w.b, key), ':')
}

func (w *jsonWriter) rawMember(key string, value []byte) {
	w.key(key)
	w.b = append(w.b, value...)
}

func (w *jsonWriter) textMember(key, value string) {
	w.key(key)
	w.b = jsonscan.AppendQuoted(w.b, value)
}

func (w *jsonWriter) intMember(key string, value int) {
	w.key(key)
	w.b = strconv.AppendInt(w.b, int64(value), 10)
}

// floatMember writes a number with at most digits decimals.
func (w *jsonWriter) floatMember(key string, value float64, digits int) {
	w.key(key)
	short, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'f', digits, 64), 64)
	w.b = strconv.AppendFloat(w.b, short, 'f', -1, 64)
}

func (w *jsonWriter) boolMember(key string, value bool) {
	w.key(key)
	w.b = strconv.AppendBool(w.b, value)
}

// arrayMember writes an array of n elements; each writes one.
func (w *jsonWriter) arrayMember(key string, n int, each func(i int)) {
	w.key(key)
	w.b = append(w.b, '[')
	for i := range n {
		w.separate()
		each(i)
	}
	w.b = append(w.b, ']')
}
