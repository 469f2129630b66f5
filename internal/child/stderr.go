package child

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

// MaxLine is how much of a line of stderr is handed on, in bytes: one that is as long was cut.
const MaxLine = 4 << 10

// complaints hands on the lines of a program's stderr.
type complaints struct {
	pipe  *os.File
	ended chan struct{}
}

func listen(pipe *os.File, line func(string)) *complaints {
	if line == nil {
		line = func(string) {}
	}
	c := &complaints{pipe: pipe, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		readLines(pipe, line)
	}()
	return c
}

// readLines gives the first 4 KiB of each line. It reads whatever comes: a program whose stderr
// is full would hang.
func readLines(r io.Reader, line func(string)) {
	in := bufio.NewReaderSize(r, MaxLine)
	for {
		text, err := in.ReadSlice('\n')
		if len(text) > 0 {
			line(string(bytes.TrimRight(text, "\r\n")))
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// drain waits for the end of stderr, and makes it if it does not come.
func (c *complaints) drain(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
	}
	c.pipe.Close()
}
