package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// syslogSockets are where syslog daemons listen on this machine.
var syslogSockets = []string{"/dev/log", "/var/run/syslog", "/var/run/log"}

const (
	// The priority of RFC 5424: facility 13, log audit, and severity 6, informational.
	syslogPriority = 13<<3 | 6

	// syslogTimeout is how long a daemon may take to accept a message.
	syslogTimeout = 2 * time.Second
)

// syslogSink sends each line as one message of RFC 5424 to the local daemon, over a datagram socket.
type syslogSink struct {
	sockets []string
	header  string // what follows the time
	conn    net.Conn
	message []byte
}

func openSyslog(socket string) (*syslogSink, error) {
	s := &syslogSink{sockets: syslogSockets}
	if socket != "" {
		s.sockets = []string{socket}
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "-"
	}
	s.header = " " + strings.Map(visibleASCII, host) + " ctxgate " + strconv.Itoa(os.Getpid()) + " audit - "
	if err := s.dial(); err != nil {
		return nil, err
	}
	return s, nil
}

// visibleASCII leaves out what a header field may not have.
func visibleASCII(r rune) rune {
	if r <= ' ' || r > '~' {
		return -1
	}
	return r
}

func (s *syslogSink) dial() error {
	ctx, cancel := context.WithTimeout(context.Background(), syslogTimeout)
	defer cancel()
	var problems []error
	for _, path := range s.sockets {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", path)
		if err == nil {
			s.conn = conn
			return nil
		}
		problems = append(problems, err)
	}
	return fmt.Errorf("connecting to syslog: %w", errors.Join(problems...))
}

func (s *syslogSink) prepare(*head, bool, []*chainKey) ([]Event, error) { return nil, nil }
func (s *syslogSink) room(*head) int64                                  { return math.MaxInt64 }
func (s *syslogSink) rotate(*head) error                                { return nil }
func (s *syslogSink) sync() error                                       { return nil }

// Close closes the connection.
func (s *syslogSink) Close() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}

// writeLines sends line by line. A daemon that was restarted is connected to again.
func (s *syslogSink) writeLines(lines []byte) (sent int, err error) {
	for sent < len(lines) {
		n := bytes.IndexByte(lines[sent:], '\n')
		if err := s.send(lines[sent : sent+n]); err != nil {
			return sent, err
		}
		sent += n + 1
	}
	return sent, nil
}

func (s *syslogSink) send(line []byte) error {
	s.message = fmt.Appendf(s.message[:0], "<%d>1 ", syslogPriority)
	s.message = time.Now().UTC().AppendFormat(s.message, "2006-01-02T15:04:05.000000Z")
	s.message = append(append(s.message, s.header...), line...)
	for attempt := range 2 {
		if s.conn == nil || attempt > 0 {
			if err := errors.Join(s.Close(), s.dial()); err != nil {
				s.conn = nil
				return err
			}
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(syslogTimeout))
		_, err := s.conn.Write(s.message)
		if err == nil {
			return nil
		}
		if attempt > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("sending to syslog: %w", err)
		}
	}
	return nil
}
