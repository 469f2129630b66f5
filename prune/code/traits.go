package code

import (
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// trait is a property of a line of code.
type trait uint16

const (
	isBlank       trait = 1 << iota // empty
	isPunctuation                   // no letter, no digit
	isComment                       // empty but a comment, or a string that documents
	isImport                        // imports names, or names the module itself
	isDef                           // begins a function, a class, a type
	isAttr                          // precedes a definition: @decorator, #[attribute]
	isCall                          // calls something
	isReturn                        // returns a value
	isTrivial                       // says nothing by itself: else, try, break
	isLinked                        // continues what a line above began: else, catch, case
)

// traitsOf returns the traits that a line shows by itself. Whether it is inside a multi-line comment
// or import depends on the lines before it.
func traitsOf(line string, d Dialect) trait {
	t := strings.TrimSpace(line)
	if t == "" {
		return isBlank | isPunctuation
	}
	word := firstName(t)
	switch {
	case startsComment(t, d):
		if !hasLetterOrDigit(t) {
			return isComment | isPunctuation
		}
		return isComment
	case !hasLetterOrDigit(t):
		return isPunctuation
	case t[0] == '@' && !strings.HasSuffix(t, "{") || strings.HasPrefix(t, "#[") || strings.HasPrefix(t, "#!["):
		return isAttr
	case startsImport(t, word):
		return isImport
	case startsDef(t, word, len(line) > 0 && line[0] != ' ' && line[0] != '\t'):
		return isDef
	}
	return statementTraits(t, word)
}

func statementTraits(t, word string) trait {
	var is trait
	bare := strings.Trim(t, "{}:; ()")
	if trivialWords[bare] {
		is |= isTrivial
	}
	rest := strings.TrimLeft(t, "}) ")
	if linkedWords[firstName(rest)] {
		is |= isLinked
	}
	if word == "return" {
		is |= isReturn
	}
	if i := strings.IndexByte(t, '('); i > 0 && isNameByte(t[i-1]) && !controlWords[word] {
		is |= isCall
	}
	return is
}

var (
	trivialWords    = relevance.WordSet("else try break return continue pass default finally do fi done esac then begin end loop unsafe")
	linkedWords     = relevance.WordSet("else elif elsif catch except finally rescue ensure case default when")
	controlWords    = relevance.WordSet("if for while switch else return catch match do try with elif except assert throw raise new case loop select defer go finally until unless await yield typeof delete not and or in")
	modifierWords   = relevance.WordSet("export default pub public private protected internal static async abstract final unsafe override const extern inline declare synchronized readonly virtual partial sealed open data local native transient crate typedef")
	definitionWords = relevance.WordSet("func fun def class fn impl trait struct enum interface type function module mod namespace macro_rules union record object protocol extension sub proc defmodule defp")
)

func hasLetterOrDigit(t string) bool {
	for i := 0; i < len(t); i++ {
		if c := t[i]; c >= 0x80 || c != '_' && relevance.IsWordByte[c] {
			return true
		}
	}
	return false
}

func isNameByte(c byte) bool { return c < 0x80 && (relevance.IsWordByte[c] || c == '$') || c >= 0x80 }

// firstName returns the name that a line begins with, or "".
func firstName(t string) string {
	i := 0
	for i < len(t) && isNameByte(t[i]) {
		i++
	}
	return t[:i]
}

func startsComment(t string, d Dialect) bool {
	switch t[0] {
	case '#':
		return d.hashComments || strings.HasPrefix(t, "#!/") // a script's first line
	case '/':
		return d.slashComments && len(t) > 1 && (t[1] == '/' || t[1] == '*')
	case '*':
		return d.slashComments && (len(t) == 1 || t[1] == ' ' || t[1] == '/' || t[1] == '*')
	case '-':
		return strings.HasPrefix(t, "-- ")
	case '"', '\'':
		return d.tripleQuotes && (strings.HasPrefix(t, `"""`) || strings.HasPrefix(t, `'''`))
	}
	return false
}

func startsImport(t, word string) bool {
	rest := t[len(word):]
	spaced := strings.HasPrefix(rest, " ")
	switch word {
	case "import":
		return rest == "" || spaced
	case "from":
		return spaced && strings.Contains(rest, " import")
	case "use", "using":
		return spaced && !strings.Contains(rest, "(")
	case "package":
		return spaced
	case "extern":
		return strings.HasPrefix(rest, " crate")
	case "require_relative", "require":
		return spaced || strings.HasPrefix(rest, "(")
	case "pub", "mod":
		return strings.HasSuffix(t, ";") && (strings.HasPrefix(t, "mod ") || strings.HasPrefix(t, "pub mod ") || strings.HasPrefix(t, "pub use "))
	case "const", "let", "var":
		return strings.Contains(rest, "= require(")
	case "":
		return t[0] == '#' && strings.HasPrefix(strings.TrimLeft(t[1:], " "), "include")
	}
	return false
}

// startsDef reports whether a line begins a definition; outer means that it is not indented.
func startsDef(t, word string, outer bool) bool {
	rest := t
	if t[0] == '@' { // an annotation before it, on the same line
		_, rest, _ = strings.Cut(t, " ")
		word = firstName(rest)
	}
	access := false
	for modifierWords[word] {
		after := rest[len(word):]
		if word == "pub" && strings.HasPrefix(after, "(") { // pub(crate)
			_, after, _ = strings.Cut(after, ")")
		}
		next := strings.TrimLeft(after, " ")
		if next == after || next == "" || !isNameByte(next[0]) && strings.IndexByte("<@*", next[0]) < 0 {
			break // the word is the name itself: open(path)
		}
		access, rest, word = true, next, firstName(next)
	}
	if definitionWords[word] {
		after := rest[len(word):]
		return (after == "" || after[0] == ' ' || after[0] == '(' || after[0] == '!' || after[0] == '*' || after[0] == '<' || after[0] == ':') &&
			(outer || !strings.HasSuffix(t, ";")) && !strings.HasPrefix(after, " =") && !strings.HasPrefix(after, " : ")
	}
	generic := access && strings.HasPrefix(rest, "<") // static <T> void read(
	if controlWords[word] || word == "" && !generic {
		return strings.HasPrefix(rest, "@interface ")
	}
	return assignsFunction(rest) || isSignature(rest, outer, access)
}

// assignsFunction reports whether a line is like app.use = function use(fn) {, const main = async () => {.
func assignsFunction(t string) bool {
	left, right, ok := strings.Cut(t, "= ")
	if !ok || strings.ContainsAny(left, "(\"'`") {
		return false
	}
	right = strings.TrimPrefix(right, "async ")
	return strings.HasPrefix(right, "function") || (strings.HasPrefix(right, "(") || strings.HasPrefix(right, "<")) && (strings.HasSuffix(t, "{") || strings.HasSuffix(t, "(") || strings.Contains(right, "=>"))
}

// isSignature reports whether a line is a name, its parameters, and what opens a body.
func isSignature(t string, outer, access bool) bool {
	p := strings.IndexByte(t, '(')
	if p <= 0 || !isNameByte(t[p-1]) && t[p-1] != '>' && t[p-1] != ' ' {
		return false
	}
	before := t[:p]
	if strings.ContainsAny(before, "=;\"'`+!|?") || !outer && strings.ContainsAny(before, ".") {
		return false
	}
	last := t[len(t)-1]
	switch {
	case last == '{':
		return true
	case strings.Contains(t, ";"):
		return false
	}
	return access || outer && (last == ')' || last == ',' || last == '(')
}

// LooksLikeLine reports whether a line looks like code of a dialect.
func LooksLikeLine(line string, d Dialect) bool {
	t := strings.TrimSpace(line)
	if strings.IndexByte("{};),(:", t[len(t)-1]) >= 0 {
		return true
	}
	return traitsOf(line, d)&(isDef|isImport|isComment|isReturn|isAttr|isCall) != 0 || strings.Contains(t, " = ")
}
