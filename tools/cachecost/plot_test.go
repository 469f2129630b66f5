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

// The page's plot is current and well formed. Not with the race detector, where the replay takes a minute;
// make cachecost checks it too.
func TestPlotIsCurrent(t *testing.T) {
	paid, err := replayAll(t.Context(), plottedTable())
	if err != nil {
		t.Fatal(err)
	}
	drawing := plottedTable().drawPlot(paid)
	for d := xml.NewDecoder(bytes.NewReader(drawing)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(plotPath(page))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(was, drawing) {
		t.Error("docs/savings.svg is out of date: go run ./tools/cachecost -plot docs/savings.svg")
	}
}
