package budget

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Entry){
		"":                               func(*Entry) {},
		"budgets[0].tenant: a name":      func(e *Entry) { e.Tenant = "" },
		"budgets[0].tenant: a name or":   func(e *Entry) { e.Tenant = strings.Repeat("x", 513) },
		"budgets[0].money: set requests": func(e *Entry) { e.Requests = 0 },
	} {
		e := entryOf(func(e *Entry) { e.Requests = 1 })
		change(&e)
		problems := Config{Budgets: []Entry{e}}.Validate()
		if want == "" && len(problems) != 0 || want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), want)) {
			t.Errorf("%q: %v", want, problems)
		}
	}
	var many Config
	for range maxEntries {
		many.Budgets = append(many.Budgets, entryOf(func(e *Entry) { e.Requests = 1 }))
	}
	if problems := many.Validate(); problems != nil {
		t.Error(problems)
	}
	many.Budgets = append(many.Budgets, many.Budgets[0])
	if problems := many.Validate(); len(problems) != 1 {
		t.Error(problems)
	}
	for want, change := range map[int]func(*Entry){0: func(e *Entry) { e.Money, e.Tokens = 1, 1 }, 1: func(e *Entry) { e.Money = 1 }} {
		if got := len(configOf(change).Warnings()); got != want {
			t.Errorf("%d warnings, want %d", got, want)
		}
	}
}
