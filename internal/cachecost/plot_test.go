//go:build !race

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"testing"
)

// The plot in the page is what would be drawn now, and well formed. The conversation is long: with
// the race detector it takes a minute to play, and make cachecost looks too.
func TestPlotIsCurrent(t *testing.T) {
	paid, err := play(t.Context(), []sheet{drawn()})
	if err != nil {
		t.Fatal(err)
	}
	drawing := drawn().draw(paid)
	for d := xml.NewDecoder(bytes.NewReader(drawing)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(plotOf(page))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(was, drawing) {
		t.Error("docs/savings.svg is out of date: go run ./internal/cachecost -plot docs/savings.svg")
	}
}
