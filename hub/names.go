package hub

import (
	"encoding/base64"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The names under which things of many servers share one space (A3). A tool or prompt is
// <server>::<name>; a resource is proxy://resource/ and the base64 of {"server","uri"}; a template
// is proxy://template/<server>/ and the template as the server wrote it, so that what a client
// fills in stays readable for the server.
const (
	defaultSeparator = "::"
	resourcePrefix   = "proxy://resource/"
	templatePrefix   = "proxy://template/"
)

// showResource is a resource's name in the common space.
func showResource(server, uri string) string {
	b := append([]byte(`{"server":`), jsonscan.AppendString(nil, server)...)
	b = append(jsonscan.AppendString(append(b, `,"uri":`...), uri), '}')
	return resourcePrefix + base64.RawURLEncoding.EncodeToString(b)
}

// showTemplate is a template's name in the common space.
func showTemplate(server, template string) string { return templatePrefix + server + "/" + template }

// splitURI finds the server and its own URI in a name of the common space.
func splitURI(shown string) (server, uri string, ok bool) {
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

// decodeObject reads base64 of a JSON object, in either alphabet, padded or not.
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

// splitName finds the server in a prefixed name. The default form is known whatever the
// separator; the id that fits the longest counts, for an id may hold the separator.
func splitName(shown, separator string, known func(server string) bool) (server, name string, ok bool) {
	for _, sep := range []string{defaultSeparator, separator} {
		for end := len(shown); ; {
			at := strings.LastIndex(shown[:end], sep)
			if at <= 0 {
				break
			}
			if known(shown[:at]) {
				return shown[:at], shown[at+len(sep):], true
			}
			end = at + len(sep) - 1 // one may overlap another: a:::x is :x of a
		}
	}
	return "", "", false
}
