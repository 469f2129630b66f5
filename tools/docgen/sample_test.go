package main

import (
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

type sample struct {
	// Listen is the address of the main listener.
	//
	// Empty: none.
	Listen string `key:"listen"`
	// Level says how much
	// is logged.
	Level string `key:"log_level" oneof:"DEBUG,INFO"`
	// Secret is the root key.
	Secret secret.Text `key:"secret"`
	// Token is what clients show.
	Token   secret.Text `key:"auth_token" literal:"ok"`
	Tags    []string    `key:"tags"` // Tags are free <text>.
	Limits  limits      `key:",inline"`
	Ignored int
	// Masking is how long results are shortened.
	Masking masking `key:"masking"`
	// Servers are the tools behind the gateway.
	Servers []server `key:"servers"`
	// One kind of masking by name.
	Schemas map[string]*int `key:"windows"`
	// Policies by name.
	Policies map[string]masking `key:"policies"`
}

type limits struct {
	// Timeout bounds an answer.
	Timeout unit.Duration `key:"response_timeout" min:"1s"`
	// Body bounds a request.
	Body unit.Bytes `key:"max_body"`
	// Spill starts here.
	Spill unit.Bytes `key:"spill"`
}

type masking struct {
	// MaxChars is the longest result left alone.
	MaxChars int `key:"max_chars" min:"0" max:"100" env:"OLD_MAX_CHARS"`
	// Share of the window.
	Share float64 `key:"share"`
	// RecoverLine tells how to get the rest.
	RecoverLine bool `key:"recover_line"`
	// Turns is a limit, if set.
	Turns *int `key:"turns"`
}

type server struct {
	// ID names the server.
	ID string `key:"id"`
	// Headers go with every request.
	Headers map[string]secret.Text `key:"headers" literal:"ok"`
	// Grace is left for a clean end.
	Grace unit.Duration `key:"shutdown_grace"`
}

func (s *server) SetDefaults() { s.Grace = unit.Duration(3e9) }

func sampleDefaults() sample {
	turns := 8
	return sample{
		Listen: "127.0.0.1:8000", Level: "INFO", Secret: secret.Parse("env:ROOT"), Tags: []string{"a"},
		Limits:  limits{Timeout: unit.Duration(30e9), Body: 32 << 20},
		Masking: masking{MaxChars: 40, Share: 0.5, RecoverLine: true},
		Schemas: map[string]*int{"one": &turns, "none": nil},
	}
}

type broken struct {
	Silent string    `key:"silent"`
	Type   chan int  `key:"type"`      // Type cannot be read.
	Deep   chan int  `key:"type"`      // Deep has a key that is taken.
	List   []uint8   `key:"list"`      // List cannot be read.
	Map    ints      `key:"map"`       // Map cannot be read.
	Bound  string    `key:"b" min:"1"` // Bound has no meaning for text.
	One    one       `key:"one"`       // One has a variable that
	Two    string    `key:"one_two"`   // Two has too.
	Self   []selfish `key:"self"`      // Self never ends.
	Anon   struct {
		X int `key:"x"`
	} `key:"anon"` // Anon has no name.
	Far unit.Duration `key:"far"` // Far is fine.
}

type ints map[int]string

type one struct {
	Two string `key:"two"` // Two is set by the same variable.
}

type selfish struct {
	More []selfish `key:"more"` // More of the same.
}
