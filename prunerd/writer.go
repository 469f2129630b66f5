package prunerd

import (
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// writer appends JSON: objects member by member, arrays element by element.
type writer struct{ b []byte }

func (w *writer) open()  { w.b = append(w.b, '{') }
func (w *writer) close() { w.b = append(w.b, '}') }

// next parts a member or an element from the one before it.
func (w *writer) next() {
	if c := w.b[len(w.b)-1]; c != '{' && c != '[' {
		w.b = append(w.b, ',')
	}
}

func (w *writer) key(key string) {
	w.next()
	w.b = append(jsonscan.AppendString(w.b, key), ':')
}

func (w *writer) raw(key string, value []byte) {
	w.key(key)
	w.b = append(w.b, value...)
}

func (w *writer) text(key, value string) {
	w.key(key)
	w.b = jsonscan.AppendString(w.b, value)
}

func (w *writer) int(key string, value int) {
	w.key(key)
	w.b = strconv.AppendInt(w.b, int64(value), 10)
}

// float writes a number with at most so many digits after the point.
func (w *writer) float(key string, value float64, digits int) {
	w.key(key)
	short, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'f', digits, 64), 64)
	w.b = strconv.AppendFloat(w.b, short, 'f', -1, 64)
}

func (w *writer) flag(key string, value bool) {
	w.key(key)
	w.b = strconv.AppendBool(w.b, value)
}

// list writes an array, one call of each for an element.
func (w *writer) list(key string, n int, each func(i int)) {
	w.key(key)
	w.b = append(w.b, '[')
	for i := range n {
		w.next()
		each(i)
	}
	w.b = append(w.b, ']')
}
