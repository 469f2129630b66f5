package frame

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"testing"
)

// heapMeter repeats text for left bytes, and measures the heap while it is read.
type heapMeter struct {
	text []byte
	left int64
	used int64 // since the last measurement
	peak uint64
}

func (m *heapMeter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && m.left > 0 {
		c := copy(p[n:min(int64(len(p)), int64(n)+m.left)], m.text)
		n += c
		m.left -= int64(c)
	}
	if m.used += int64(n); m.used > 1<<20 {
		m.used = 0
		m.measure()
	}
	return n, nil
}

func (m *heapMeter) measure() {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.peak = max(m.peak, s.HeapAlloc)
}

func heapInUse() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// An endless line, 256 MiB of it, at a limit of 8 MiB.
func TestEndlessLineStaysInLimit(t *testing.T) {
	const limit = 8 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(5)) // so that the heap is what is in use
	before := heapInUse()
	m := &heapMeter{text: bytes.Repeat([]byte("["), 64<<10), left: 256 << 20}
	r := NewReader(m, limit, nil)
	_, err := r.Next()
	if big, ok := errors.AsType[*TooLargeError](err); !ok || big.Size != skipFactor*limit {
		t.Fatalf("got %v", err)
	}
	if read := 256<<20 - m.left; read > skipFactor*limit+readAhead {
		t.Errorf("reported only after %d bytes", read)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if peak := int64(m.peak - before); peak > limit+limit/4 {
		t.Errorf("%d bytes in use at a limit of %d", peak, limit)
	}
	if now := int64(heapInUse() - before); now > 1<<20 {
		t.Errorf("%d bytes are still in use", now)
	}
	runtime.KeepAlive(r)
}

func TestLargeMessagePeak(t *testing.T) {
	const size = 20 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	before := heapInUse()
	s := spool{limit: 64 << 20}
	piece := bytes.Repeat([]byte("x"), 64<<10)
	for range size / len(piece) {
		s.addBytes(piece)
	}
	held := s.capacity
	text, err := s.join(size)
	if err != nil || len(text) != size {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if peak := held + int64(cap(text)); peak > size*5/2 {
		t.Errorf("%d bytes at the peak", peak)
	}
	if now := int64(heapInUse() - before); now > size+size/8 {
		t.Errorf("%d bytes in use for a message of %d", now, size)
	}
	runtime.KeepAlive(text)
}

func TestSmallMessageAllocations(t *testing.T) {
	const n, size = 10_000, 200
	line := append(bytes.Repeat([]byte("["), size), '\n')
	r := NewReader(bytes.NewReader(bytes.Repeat(line, n+1)), 1<<20, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > size+16 {
		t.Errorf("%d bytes for a message of %d", each, size)
	}
	if allocs := after.Mallocs - before.Mallocs; allocs > n+n/100 {
		t.Errorf("%d allocations for %d messages", allocs, n)
	}
}

func BenchmarkReader(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"200B", 200}, {"16KiB", 16 << 10}, {"8MiB", 8 << 20}, {"20MiB", 20 << 20}} {
		line := append(bytes.Repeat([]byte("x"), c.size), '\n')
		line[0] = '{'
		input := bytes.Repeat(line, max(1, (1<<20)/len(line)))
		b.Run("lines/"+c.name, func(b *testing.B) {
			b.SetBytes(int64(len(input)))
			b.ReportAllocs()
			for b.Loop() {
				r := NewReader(bytes.NewReader(input), 1<<30, nil)
				for {
					if _, err := r.Next(); err != nil {
						break
					}
				}
			}
		})
		b.Run("copy/"+c.name, func(b *testing.B) {
			b.SetBytes(int64(len(input)))
			b.ReportAllocs()
			for b.Loop() {
				var out bytes.Buffer
				_, _ = io.Copy(struct{ io.Writer }{&out}, struct{ io.Reader }{bytes.NewReader(input)})
			}
		})
	}
}
