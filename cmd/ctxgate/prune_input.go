package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

// maxInput is the longest text that can be pruned: the engine counts bytes in 31 bits, including a line
// break after the last line.
const maxInput = math.MaxInt32 - 1

var errTooLarge = errors.New("the input is larger than 2 GiB; split it first (split -C 1G)")

// readInput reads a whole file, or stdin. While stdin is slow, a terminal shows the progress.
func readInput(cmd *cobra.Command, file string) (string, error) {
	in := &input{Reader: cmd.InOrStdin()}
	size := int64(0)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return "", err
		}
		in.Reader, size = f, info.Size()
	} else if isTerminal(cmd.ErrOrStderr()) && !isTerminal(in.Reader) {
		defer in.showProgress(cmd.ErrOrStderr())()
	}
	if size > maxInput {
		return "", errTooLarge
	}
	var text strings.Builder
	err := await(cmd.Context(), func() error {
		text.Grow(int(size))
		_, err := io.Copy(&text, io.LimitReader(in, maxInput+1))
		return err
	})
	switch {
	case errors.Is(err, errInterrupted): // do not read text: it is still being written
		return "", err
	case err != nil:
		return "", fmt.Errorf("reading the input: %w", err)
	case text.Len() > maxInput:
		return "", errTooLarge
	}
	return text.String(), nil
}

// input counts the bytes and lines that are read.
type input struct {
	io.Reader
	bytes, lines atomic.Int64
}

func (in *input) Read(p []byte) (int, error) {
	n, err := in.Reader.Read(p)
	in.bytes.Add(int64(n))
	in.lines.Add(int64(bytes.Count(p[:n], []byte{'\n'})))
	return n, err
}

// When the progress line first appears, and how often it is updated.
const (
	showAfter = time.Second
	showEvery = 200 * time.Millisecond
)

// showProgress keeps one line on w that says how much was read, until stop is called.
func (in *input) showProgress(w io.Writer) (stop func()) {
	var wait sync.WaitGroup
	end := make(chan struct{})
	wait.Go(func() {
		tick := time.NewTicker(showAfter)
		defer tick.Stop()
		for shown := false; ; shown = true {
			select {
			case <-tick.C:
				tick.Reset(showEvery)
				fmt.Fprintf(w, "\rctxgate: %d lines, %.1f MB read\x1b[K", in.lines.Load(), float64(in.bytes.Load())/1e6)
			case <-end:
				if shown {
					fmt.Fprintf(w, "\r\x1b[K")
				}
				return
			}
		}
	})
	return func() { close(end); wait.Wait() }
}
