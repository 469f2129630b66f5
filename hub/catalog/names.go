package catalog

import (
	"encoding/base64"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Naming says how tools, prompts and resources of many servers share one name space.
type Naming struct {
	// The text between a server's id and a name. Calls may use "::" and "__" as well, whatever is set
	// here. Default "::"; with profile = "agents", "__".
	Separator string `key:"separator"`

	// When names start with their server's id: "always", "auto" (only if two names would collide) or
	// "never". Default "always".
	Prefix string `key:"prefix" oneof:"always,auto,never"`
}

// The names under which items of many servers share one name space (A3). A tool or prompt is
// <server>::<name>; a resource is proxy://resource/ and the base64 of {"server","uri"}; a template
// is proxy://template/<server>/ and the template as the server wrote it, so that the server can read
// what a client fills in.
const (
	defaultSeparator = "::"
	agentsSeparator  = "__" // that of the profile "agents": model APIs accept it
	resourcePrefix   = "proxy://resource/"
	templatePrefix   = "proxy://template/"
)

// prefixedName returns an item's name with the server's id in it.
func prefixedName(k Kind, server, name string, naming Naming) string {
	switch k {
	case Resources:
		return PrefixedURI(server, name)
	case Templates:
		return templatePrefix + server + "/" + name
	case Tools, Prompts, kindCount:
	}
	return server + naming.Separator + name
}

// PrefixedURI returns the URI of a resource with the server's id in it.
func PrefixedURI(server, uri string) string {
	b := append([]byte(`{"server":`), jsonscan.AppendQuoted(nil, server)...)
	b = append(jsonscan.AppendQuoted(append(b, `,"uri":`...), uri), '}')
	return resourcePrefix + base64.RawURLEncoding.EncodeToString(b)
}

// SplitURI splits the prefixed URI of a resource, or of a filled-in template, into the server's id and the
// server's own URI.
func SplitURI(shown string) (server, uri string, ok bool) {
	if rest, found := strings.CutPrefix(shown, templatePrefix); found {
		return strings.Cut(rest, "/")
	}
	rest, found := strings.CutPrefix(shown, resourcePrefix)
	if !found {
		return "", "", false
	}
	fields, err := decodeObject(rest)
	if err != nil {
		return "", "", false
	}
	server, uri = fields.Text("server"), fields.Text("uri")
	return server, uri, server != "" && uri != ""
}

// SplitName splits a prefixed name into the server's id and the server's own name. The separators of both profiles
// are understood besides the configured one. An id may hold the separator: the longest id that isServer knows counts.
func SplitName(shown, separator string, isServer func(id string) bool) (server, name string, ok bool) {
	for _, sep := range []string{defaultSeparator, separator, agentsSeparator} {
		for end := len(shown); ; {
			at := strings.LastIndex(shown[:end], sep)
			if at <= 0 {
				break
			}
			if isServer(shown[:at]) {
				return shown[:at], shown[at+len(sep):], true
			}
			end = at + len(sep) - 1 // separators may overlap: a:::x is :x of a
		}
	}
	return "", "", false
}

// decodeObject decodes the base64 of a JSON object, in either alphabet, padded or not.
func decodeObject(s string) (jsonscan.Fields, error) {
	s = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(s, "="))
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return jsonscan.Fields{}, err
	}
	scan := jsonscan.New(raw, 4)
	if _, err := scan.SkipStrict(); err != nil {
		return jsonscan.Fields{}, err
	}
	if err := scan.End(); err != nil {
		return jsonscan.Fields{}, err
	}
	return jsonscan.FieldsOf(raw)
}
