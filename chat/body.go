package chat

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// accepted are the content codings of a request that are read, for the Accept-Encoding of a refusal.
const accepted = "gzip, zstd"

// errCoding is in the error of a request whose content coding is not read: 415.
var errCoding = errors.New("unsupported content coding")

const (
	gzipMemory = 64 << 10 // about what a gzip reader takes
	zstdMemory = 512 << 10
	zstdWindow = 8 << 20 // the largest window that a decoder must take (RFC 9659)
)

// contentCoding is the content coding of a request, "" for none.
func contentCoding(h http.Header) (string, error) {
	coding := ""
	for _, line := range h["Content-Encoding"] {
		for name := range strings.SplitSeq(line, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); {
			case name == "" || name == "identity":
			case coding != "":
				return "", fault.Wrap(fault.InvalidRequest, "Content-Encoding: more than one coding is not read", errCoding)
			case name == "gzip" || name == "x-gzip":
				coding = "gzip"
			case name == "zstd":
				coding = name
			default:
				return "", fault.Wrap(fault.InvalidRequest, "Content-Encoding: only gzip and zstd are read", errCoding)
			}
		}
	}
	return coding, nil
}

// readBody reads and decodes a request's body. The limit holds for the compressed and the decoded body.
// Memory is charged to the request as the body grows, so that a decompression bomb is refused early.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	coding, err := contentCoding(r.Header)
	if err != nil {
		return nil, err
	}
	if coding == "" {
		return front.ReadBody(w, r, most)
	}
	source := &sourceReader{r: r.Body}
	decoder, closeDecoder, err := openDecoder(coding, source, membudget.FromContext(r.Context()))
	if err != nil {
		return nil, decodeFault(source, coding, err)
	}
	defer closeDecoder()
	decoded := *r
	decoded.Body, decoded.ContentLength = io.NopCloser(&decodedReader{decoder, source, coding}), -1
	return front.ReadBody(w, &decoded, most)
}

// openDecoder opens a decoder, and charges its memory to the scope until it is closed.
func openDecoder(coding string, source *sourceReader, scope *membudget.Scope) (_ io.Reader, closeDecoder func(), err error) {
	buffered := bufio.NewReader(source)
	need := int64(gzipMemory)
	if coding == "zstd" {
		var head zstd.Header
		if start, err := buffered.Peek(zstd.HeaderMaxSize); len(start) == 0 {
			return nil, nil, err
		} else if err := head.Decode(start); err != nil {
			return nil, nil, err
		}
		window := max(head.WindowSize, zstd.MinWindowSize)
		if head.SingleSegment {
			window = max(window, head.FrameContentSize)
		}
		need = zstdMemory + int64(min(window, zstdWindow))
	}
	if err := scope.Reserve(need); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			scope.Free(need)
		}
	}()
	if coding == "gzip" {
		z, err := gzip.NewReader(buffered)
		return z, func() { scope.Free(need) }, err
	}
	z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(uint64(need-zstdMemory))) // later frames must not need more than the first
	if err != nil {
		return nil, nil, err
	}
	return z, func() { z.Close(); scope.Free(need) }, nil
}

// sourceReader records the error of reading the compressed body.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// decodedReader distinguishes a body that cannot be decoded from one that did not arrive.
type decodedReader struct {
	decoder io.Reader
	source  *sourceReader
	coding  string
}

func (d *decodedReader) Read(p []byte) (int, error) {
	n, err := d.decoder.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = decodeFault(d.source, d.coding, err)
	}
	return n, err
}

// decodeFault is the error for a body that cannot be decoded.
func decodeFault(source *sourceReader, coding string, err error) error {
	var told *fault.Error
	switch {
	case source.err != nil:
		return source.err
	case errors.As(err, &told):
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fault.Wrap(fault.TooLarge, "the request is too large", err)
	}
	return fault.Wrap(fault.Syntax, "the request's body is not valid "+coding, err)
}
