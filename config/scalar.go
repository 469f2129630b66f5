package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/internal/unit"
)

func (d *decoder) scalar(n *node, v reflect.Value, at at) {
	switch v.Kind() {
	case reflect.String:
		d.text(n, v, at)
	case reflect.Bool:
		if n.kind != boolKind {
			d.problem(n.line, at.path, "want true or false, found %s", n.quotation())
			return
		}
		v.SetBool(n.bool)
	case reflect.Int, reflect.Int64:
		d.integer(n, v, at)
	case reflect.Float64:
		d.float(n, v, at)
	default:
		d.problem(n.line, at.path, "no key can have the type %s", v.Type())
	}
}

func (d *decoder) text(n *node, v reflect.Value, at at) {
	if n.kind != textKind {
		d.mismatch(n, at.path, "text")
		return
	}
	if allowed := oneOf(at.tag); allowed != nil && !slices.Contains(allowed, n.text) {
		d.problem(n.line, at.path, "want one of %s, found %s%s",
			quoteAll(allowed), quote(n.text), didYouMean(n.text, allowed))
		return
	}
	v.SetString(n.text)
}

func (d *decoder) integer(n *node, v reflect.Value, at at) {
	i := n.int
	switch {
	case n.kind == floatKind && n.float != math.Trunc(n.float): // NaN too
		d.problem(n.line, at.path, "want a whole number, found %s", n.quotation())
		return
	case n.kind == floatKind && (n.float >= 1<<63 || n.float < -1<<63):
		d.problem(n.line, at.path, "%s is out of range", n.quotation())
		return
	case n.kind == floatKind: // 30.0, which JSON does not tell from 30
		i = int64(n.float)
	case n.kind != intKind:
		d.problem(n.line, at.path, "want a number, found %s", n.quotation())
		return
	}
	d.setInt(n, v, at, i)
}

func (d *decoder) float(n *node, v reflect.Value, at at) {
	f, ok := n.number()
	if !ok {
		d.problem(n.line, at.path, "want a number, found %s", n.quotation())
		return
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.problem(n.line, at.path, "want a finite number, found %s", n.quotation())
		return
	}
	if low, err := strconv.ParseFloat(at.tag.Get("min"), 64); err == nil && f < low {
		d.problem(n.line, at.path, "must be at least %v, found %v", low, f)
		return
	}
	if high, err := strconv.ParseFloat(at.tag.Get("max"), 64); err == nil && f > high {
		d.problem(n.line, at.path, "must be at most %v, found %v", high, f)
		return
	}
	v.SetFloat(f)
}

func (n *node) number() (float64, bool) {
	switch n.kind {
	case intKind:
		return float64(n.int), true
	case floatKind:
		return n.float, true
	default:
		return 0, false
	}
}

func (d *decoder) duration(n *node, v reflect.Value, at at) {
	var span unit.Duration
	var err error
	if f, ok := n.number(); ok {
		span, err = unit.Seconds(f)
	} else if n.kind == textKind {
		span, err = unit.ParseDuration(clip(n.text))
	} else {
		d.mismatch(n, at.path, `a duration (seconds, or text such as "30s")`)
		return
	}
	if err != nil {
		d.problem(n.line, at.path, "%s", err)
		return
	}
	d.setInt(n, v, at, int64(span))
}

func (d *decoder) bytes(n *node, v reflect.Value, at at) {
	var size unit.Bytes
	var err error
	switch n.kind {
	case intKind, floatKind:
		size, err = unit.ParseBytes(n.text)
	case textKind:
		size, err = unit.ParseBytes(clip(n.text))
	default:
		d.mismatch(n, at.path, `a size (bytes, or text such as "64KiB")`)
		return
	}
	if err != nil {
		d.problem(n.line, at.path, "%s", err)
		return
	}
	d.setInt(n, v, at, int64(size))
}

// setInt stores what an int64 holds, durations and sizes included, once it is within bounds.
func (d *decoder) setInt(n *node, v reflect.Value, at at, i int64) {
	if low, ok := bound(v.Type(), at.tag.Get("min")); ok && i < low {
		d.problem(n.line, at.path, "must be at least %s, found %s", at.tag.Get("min"), printInt(v.Type(), i))
		return
	}
	if high, ok := bound(v.Type(), at.tag.Get("max")); ok && i > high {
		d.problem(n.line, at.path, "must be at most %s, found %s", at.tag.Get("max"), printInt(v.Type(), i))
		return
	}
	if v.OverflowInt(i) {
		d.problem(n.line, at.path, "%d is out of range", i)
		return
	}
	v.SetInt(i)
}

// CheckTags finds a bound that does not fit the field's type, which the decoder would pass over.
func (f Field) CheckTags() error {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, name := range []string{"min", "max"} {
		text, ok := f.Tag.Lookup(name)
		if !ok {
			continue
		}
		switch t.Kind() {
		case reflect.Int, reflect.Int64:
			_, ok = bound(t, text)
		case reflect.Float64:
			_, err := strconv.ParseFloat(text, 64)
			ok = err == nil
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("the tag %s:%q does not fit the type %s", name, text, f.Type)
		}
	}
	return nil
}

func bound(t reflect.Type, tag string) (int64, bool) {
	if tag == "" {
		return 0, false
	}
	switch t {
	case durationType:
		span, err := unit.ParseDuration(tag)
		return int64(span), err == nil
	case bytesType:
		size, err := unit.ParseBytes(tag)
		return int64(size), err == nil
	default:
		i, err := strconv.ParseInt(tag, 10, 64)
		return i, err == nil
	}
}

func printInt(t reflect.Type, i int64) string {
	switch t {
	case durationType:
		return unit.Duration(i).String()
	case bytesType:
		return unit.Bytes(i).String()
	default:
		return strconv.FormatInt(i, 10)
	}
}
