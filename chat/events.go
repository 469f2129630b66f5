package chat

import "bytes"

// events reads an event stream in passing, in whatever pieces it comes: the data of each event goes
// to data, and its end to over.
type events struct {
	data func(p []byte)
	over func()

	state lineState
	seen  int  // bytes of the line that begin as a data field does
	cr    bool // the last line ended in CR: an LF right after it belongs to that end
}

type lineState uint8

const (
	lineBegins lineState = iota
	lineIsData
	lineIsOther
)

const dataField = "data:"

func (e *events) write(p []byte) {
	for len(p) > 0 {
		if e.cr && p[0] == '\n' {
			p = p[1:]
			e.cr = false
			continue
		}
		e.cr = false
		if e.state == lineBegins && p[0] != '\n' && p[0] != '\r' {
			e.begin(p[0])
			p = p[1:]
			continue
		}
		p = e.rest(p)
	}
}

// begin looks at one of the first bytes of a line.
func (e *events) begin(c byte) {
	if c != dataField[e.seen] {
		e.state = lineIsOther
		return
	}
	if e.seen++; e.seen == len(dataField) {
		e.state = lineIsData
	}
}

// rest passes the rest of the line, and its end where that has come. An empty line ends an event.
func (e *events) rest(p []byte) []byte {
	at := bytes.IndexAny(p, "\r\n")
	end := at
	if at < 0 {
		end = len(p)
	}
	if e.state == lineIsData {
		e.data(p[:end])
	}
	if at < 0 {
		return nil
	}
	if e.state == lineBegins && e.seen == 0 {
		e.over()
	}
	e.state, e.seen, e.cr = lineBegins, 0, p[at] == '\r'
	return p[at+1:]
}
