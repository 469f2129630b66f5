package prune

// shape says what of code stays together.
func (c *code) shape() shape {
	s := shape{must: make([]bool, len(c.is)), code: c}
	for i, is := range c.is {
		switch {
		case is&isImport != 0:
			s.must[i] = true
		case is&isDef != 0:
			s.must[i] = true
			c.under(i, s.must)
			for j := i + 1; j <= int(min(c.params[i], int32(i+maxParams))); j++ {
				s.must[j] = true
			}
		}
	}
	for i := range min(c.title, maxOpening) {
		s.must[i] = true
	}
	if c.title > 0 { // what ends it, so that it is no half
		s.must[c.title-1] = true
	}
	return s
}

// under keeps what a definition stands in, and where that ends. Definitions come in order, so what
// stays already has been here before.
func (c *code) under(i int, must []bool) {
	for p, known := c.parent[i], false; p >= 0 && !known; p = c.parent[p] {
		if end := c.close[p]; end >= 0 {
			must[end] = true
		}
		known, must[p] = must[p], true
	}
}

const (
	maxParams  = 40 // lines of parameters that stay with a definition
	maxOpening = 5  // lines of the comment that a file begins with: a licence is longer than it is useful
)

// needs adds the lines that line i cannot be read without: what opens the block it stands in and
// what closes it, the if of its else, both ends of the comment or string it is part of, and what
// an attribute is attached to.
func (c *code) needs(i int32, todo []int32) []int32 {
	for _, j := range [...]int32{c.parent[i], c.lead[i], c.close[i], c.also[i]} {
		if j >= 0 {
			todo = append(todo, j)
		}
	}
	if c.is[i]&isAttr != 0 && int(i)+1 < len(c.is) {
		todo = append(todo, i+1)
	}
	return todo
}
