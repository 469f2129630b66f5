package child

import "os"

// way is the direction of a pipe, seen from the gateway.
type way bool

const (
	in  way = false // from the other process
	out way = true  // to it
)

// plumbing is the pipes to another process. All ends are close-on-exec; the far ones are handed
// over by name, and closed here afterwards, since a pipe ends only when its last copy is closed.
type plumbing struct{ near, far []*os.File }

func plumb(ways ...way) (plumbing, error) {
	var p plumbing
	for _, w := range ways {
		r, wr, err := os.Pipe()
		if err != nil {
			p.close()
			return plumbing{}, err
		}
		if w == in {
			r, wr = wr, r
		}
		p.near, p.far = append(p.near, wr), append(p.far, r)
	}
	return p, nil
}

func (p plumbing) close() {
	closeAll(p.near)
	closeAll(p.far)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
