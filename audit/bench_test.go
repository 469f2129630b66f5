package audit

import (
	"io"
	"path/filepath"
	"testing"
	"time"
)

var benchEvent = Event{
	Kind: KindCall, Tenant: "acme", Subject: "ann@example.com", Issuer: "https://idp.example.com", Credential: "oidc", Method: "tools/call", Server: "files", Tool: "read_text_file",
	Decision: "allow", Rule: "readers", Outcome: "ok", BytesIn: 123, BytesOut: 45678, CharsCut: 40000, IDs: []string{"prn_0123456789abcdefghjkmnpqrs"}, Request: "42", Duration: 1234 * time.Microsecond,
}

// BenchmarkEvent is the processor time of one event from Record to the file, all goroutines together: cpu-ns/op.
func BenchmarkEvent(b *testing.B) {
	cfg := Default()
	cfg.Path, cfg.Keep = filepath.Join(b.TempDir(), "audit.log"), 2
	l, err := Open(cfg, Options{Dir: b.TempDir(), Roots: [][]byte{testRoot}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	began := processorTime()
	for i := 0; b.Loop(); i++ {
		l.Record(&benchEvent)
		if i%64 == 0 { // as fast as it is written
			for l.Stats().Queued > maxQueueBytes/2 {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}
	l.Close()
	b.ReportMetric(float64(processorTime()-began)/float64(b.N), "cpu-ns/op")
	if n := l.Stats().Dropped; n > 0 {
		b.Errorf("%d events were dropped", n)
	}
}

// BenchmarkSlowly is the same with a millisecond between two events, less what the waiting itself takes.
func BenchmarkSlowly(b *testing.B) {
	cfg := Default()
	cfg.Path = filepath.Join(b.TempDir(), "audit.log")
	l, err := Open(cfg, Options{Dir: b.TempDir(), Roots: [][]byte{testRoot}})
	if err != nil {
		b.Fatal(err)
	}
	began := processorTime()
	for b.Loop() {
		l.Record(&benchEvent)
		time.Sleep(time.Millisecond)
	}
	used := processorTime() - began
	l.Close()
	began = processorTime()
	for range b.N {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64(used-(processorTime()-began))/float64(b.N), "cpu-ns/op")
}

// BenchmarkRecord is what a request pays, and BenchmarkRecordBlocked what it pays while nothing can be written.
func BenchmarkRecord(b *testing.B) {
	cfg := Default()
	cfg.Path = "-"
	l, err := Open(cfg, Options{Dir: b.TempDir(), Roots: [][]byte{testRoot}, Stdout: io.Discard})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Record(&benchEvent)
	}
	l.Close()
}

func BenchmarkRecordBlocked(b *testing.B) {
	out := &slowOut{open: make(chan struct{})}
	cfg := Default()
	cfg.Path = "-"
	l, err := Open(cfg, Options{Dir: b.TempDir(), Roots: [][]byte{testRoot}, Stdout: out})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Record(&benchEvent)
	}
	close(out.open)
	l.Close()
}
