package textedit

import (
	"reflect"
	"testing"
)

func TestApplyTakesSplicesInAnyOrder(t *testing.T) {
	got := string(Apply([]byte("abcdef"), Replace(4, 5, []byte("X")), Splice{From: 0, To: 2}, Replace(6, 6, []byte("!"))))
	if got != "cdXf!" {
		t.Errorf("got %q", got)
	}
}

func TestEditsOfDecodedDocuments(t *testing.T) {
	model, err := SetIn(nil, []string{"a", "b"}, []any{"x"})
	if err == nil {
		model, err = SetIn(model, []string{"a", "b", "1"}, "y")
	}
	if err == nil {
		model, err = DeleteIn(model, []string{"a", "b", "0"})
	}
	if want := map[string]any{"a": map[string]any{"b": []any{"y"}}}; err != nil || !reflect.DeepEqual(model, want) {
		t.Errorf("%v: %v", err, model)
	}
	if v, ok := GetIn(model, []string{"a", "b", "0"}); !ok || v != "y" {
		t.Errorf("got %v", v)
	}
	for _, path := range [][]string{{"a", "b", "7"}, {"a", "b", "0", "c"}, {"a", "b", "x"}} {
		if _, err := SetIn(model, path, 1); err == nil {
			t.Errorf("%v was set", path)
		}
	}
}

func TestByteOrderMarkAndLineEndings(t *testing.T) {
	src, has := CutBOM([]byte("\xef\xbb\xbfa\r\nb\n"))
	if !has || string(WithBOM(src, has)) != "\xef\xbb\xbfa\r\nb\n" || EOL(src) != "\r\n" || EOL([]byte("a\nb\r\n")) != "\n" {
		t.Errorf("got %q", src)
	}
}
