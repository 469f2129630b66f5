package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// dialer makes connections that send large bodies through buffers that are used again.
type dialer struct{ net.Dialer }

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.DialContext(ctx, network, address)
	if tcp, ok := c.(*net.TCPConn); ok {
		return conduit{tcp}, nil
	}
	return c, err
}

// conduit is a TCP connection. What the standard library would make a buffer for, each time anew,
// goes through one of a few.
type conduit struct{ *net.TCPConn }

const conduitBytes = 64 << 10

var conduits = sync.Pool{New: func() any { return new([conduitBytes]byte) }}

// ReadFrom sends what a reader gives. There is no file behind it that a kernel could send by itself.
func (c conduit) ReadFrom(r io.Reader) (sent int64, err error) {
	buf, _ := conduits.Get().(*[conduitBytes]byte)
	defer conduits.Put(buf)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			m, err := c.Write(buf[:n])
			if sent += int64(m); err != nil {
				return sent, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return sent, nil
		case err != nil:
			return sent, err
		}
	}
}
