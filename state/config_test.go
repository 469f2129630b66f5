package state

import (
	"fmt"
	"slices"
	"testing"
)

func TestValidate(t *testing.T) {
	if problems := Default().Validate(); problems != nil {
		t.Errorf("the default has problems: %v", problems)
	}
	for _, c := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.Driver = "memory" }, nil},
		{func(c *Config) { c.Spare = 0 }, nil},
		{func(c *Config) { c.Driver = "redis" }, []string{`url: is required with driver = "redis"`}},
		{func(c *Config) { c.Driver = "" }, []string{`driver: "" is not one of memory, sqlite, redis`}},
		{func(c *Config) { c.TTL = 0 }, []string{"ttl: must be positive"}},
		{func(c *Config) { c.MaxBytes = 0; c.Timeout = -1; c.Spare = -1 },
			[]string{"max_bytes: must be positive", "spare: must not be negative", "timeout: must be positive"}},
		{func(c *Config) { *c = Config{} }, []string{`driver: "" is not one of memory, sqlite, redis`,
			"ttl: must be positive", "max_bytes: must be positive", "timeout: must be positive"}},
	} {
		config := Default()
		c.change(&config)
		var got []string
		for _, err := range config.Validate() {
			got = append(got, fmt.Sprint(err))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("Validate = %q, want %q", got, c.want)
		}
	}
}
