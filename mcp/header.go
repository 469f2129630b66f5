package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// HeaderParamPrefix begins the name of a header that mirrors a parameter of a tool.
const HeaderParamPrefix = "Mcp-Param-"

// What an encoded header value stands between (2026-07-28, Streamable HTTP, Value Encoding).
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

var errHeaderByte = errors.New("a byte that a header value cannot hold")

// EncodeHeader is value as an Mcp-Name or Mcp-Param header carries it: as it is where a header
// can hold it, else in Base64. An empty value is encoded too, though a header can hold it: there
// are peers and proxies to which an empty header is none.
func EncodeHeader(value string) string {
	plain := value != "" && visible(value) && strings.Trim(value, " \t") == value
	looksEncoded := strings.HasPrefix(value, encodedPrefix) && strings.HasSuffix(value, encodedSuffix)
	if plain && !looksEncoded {
		return value
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(value)) + encodedSuffix
}

// DecodeHeader is the value that a header carries. A byte that has no place in a header, Base64
// that is not exactly what an encoder writes, and text in it that is not UTF-8 are refused: two
// readers could see two values in them.
func DecodeHeader(s string) (string, error) {
	s = strings.Trim(s, " \t") // no part of the value (RFC 9110, section 5.5)
	if !visible(s) {
		return "", errHeaderByte
	}
	text, prefixed := strings.CutPrefix(s, encodedPrefix)
	text, encoded := strings.CutSuffix(text, encodedSuffix)
	if !prefixed || !encoded {
		return s, nil
	}
	value, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("header value: %w", err)
	}
	if !utf8.Valid(value) {
		return "", errors.New("header value: not UTF-8")
	}
	return string(value), nil
}

// visible says whether s holds nothing but what a header value may: visible ASCII, space and tab.
func visible(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}
