package prune

import "strings"

// trait is what a line of code is.
type trait uint16

const (
	isBlank   trait = 1 << iota // nothing
	isMarks                     // no letter, no digit
	isComment                   // nothing but a comment, or a string that documents
	isImport                    // brings names in, or names the module itself
	isDef                       // begins a function, a class, a type
	isAttr                      // stands before a definition: @decorator, #[attribute]
	isCall                      // calls something
	isReturn                    // gives a value back
	isTrivial                   // says nothing by itself: else, try, break
	isLinked                    // goes on with what a line above began: else, catch, case
)

// traitsOf tells what a line is by itself. Whether it stands in a comment or an import of many
// lines, only the lines before it know.
func traitsOf(line string, d dialect) trait {
	t := strings.TrimSpace(line)
	if t == "" {
		return isBlank | isMarks
	}
	word := leadWord(t)
	switch {
	case startsComment(t, d):
		if !hasContent(t) {
			return isComment | isMarks
		}
		return isComment
	case !hasContent(t):
		return isMarks
	case t[0] == '@' && !strings.HasSuffix(t, "{") || strings.HasPrefix(t, "#[") || strings.HasPrefix(t, "#!["):
		return isAttr
	case startsImport(t, word):
		return isImport
	case startsDef(t, word, len(line) > 0 && line[0] != ' ' && line[0] != '\t'):
		return isDef
	}
	return smallTraits(t, word)
}

func smallTraits(t, word string) trait {
	var is trait
	bare := strings.Trim(t, "{}:; ()")
	if trivial[bare] {
		is |= isTrivial
	}
	rest := strings.TrimLeft(t, "}) ")
	if linked[leadWord(rest)] {
		is |= isLinked
	}
	if word == "return" {
		is |= isReturn
	}
	if i := strings.IndexByte(t, '('); i > 0 && isNameByte(t[i-1]) && !control[word] {
		is |= isCall
	}
	return is
}

var (
	trivial   = set("else try break return continue pass default finally do fi done esac then begin end loop unsafe")
	linked    = set("else elif elsif catch except finally rescue ensure case default when")
	control   = set("if for while switch else return catch match do try with elif except assert throw raise new case loop select defer go finally until unless await yield typeof delete not and or in")
	modifiers = set("export default pub public private protected internal static async abstract final unsafe override const extern inline declare synchronized readonly virtual partial sealed open data local native transient crate typedef")
	defWords  = set("func fun def class fn impl trait struct enum interface type function module mod namespace macro_rules union record object protocol extension sub proc defmodule defp")
)

func hasContent(t string) bool {
	for i := 0; i < len(t); i++ {
		if c := t[i]; c >= 0x80 || c != '_' && isWordByte[c] {
			return true
		}
	}
	return false
}

func isNameByte(c byte) bool { return c < 0x80 && (isWordByte[c] || c == '$') || c >= 0x80 }

// leadWord is the name that a line begins with; "" when it begins with something else.
func leadWord(t string) string {
	i := 0
	for i < len(t) && isNameByte(t[i]) {
		i++
	}
	return t[:i]
}

func startsComment(t string, d dialect) bool {
	switch t[0] {
	case '#':
		return d.hash || strings.HasPrefix(t, "#!/") // a script's first line
	case '/':
		return d.slash && len(t) > 1 && (t[1] == '/' || t[1] == '*')
	case '*':
		return d.slash && (len(t) == 1 || t[1] == ' ' || t[1] == '/' || t[1] == '*')
	case '-':
		return strings.HasPrefix(t, "-- ")
	case '"', '\'':
		return d.triple && (strings.HasPrefix(t, `"""`) || strings.HasPrefix(t, `'''`))
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

// startsDef says whether a line begins a definition. outer: it is not indented.
func startsDef(t, word string, outer bool) bool {
	rest := t
	if t[0] == '@' { // an annotation before it, on the same line
		_, rest, _ = strings.Cut(t, " ")
		word = leadWord(rest)
	}
	access := false
	for modifiers[word] {
		after := rest[len(word):]
		if word == "pub" && strings.HasPrefix(after, "(") { // pub(crate)
			_, after, _ = strings.Cut(after, ")")
		}
		next := strings.TrimLeft(after, " ")
		if next == after || next == "" || !isNameByte(next[0]) && strings.IndexByte("<@*", next[0]) < 0 {
			break // it is itself the name: open(path)
		}
		access, rest, word = true, next, leadWord(next)
	}
	if defWords[word] {
		after := rest[len(word):]
		return (after == "" || after[0] == ' ' || after[0] == '(' || after[0] == '!' || after[0] == '*' || after[0] == '<' || after[0] == ':') &&
			(outer || !strings.HasSuffix(t, ";")) && !strings.HasPrefix(after, " =") && !strings.HasPrefix(after, " : ")
	}
	generic := access && strings.HasPrefix(rest, "<") // static <T> void read(
	if control[word] || word == "" && !generic {
		return strings.HasPrefix(rest, "@interface ")
	}
	return assignsFunction(rest) || signature(rest, outer, access)
}

// assignsFunction: app.use = function use(fn) {, const main = async () => {.
func assignsFunction(t string) bool {
	left, right, ok := strings.Cut(t, "= ")
	if !ok || strings.ContainsAny(left, "(\"'`") {
		return false
	}
	right = strings.TrimPrefix(right, "async ")
	return strings.HasPrefix(right, "function") || (strings.HasPrefix(right, "(") || strings.HasPrefix(right, "<")) && (strings.HasSuffix(t, "{") || strings.HasSuffix(t, "(") || strings.Contains(right, "=>"))
}

// signature: a name, its parameters, and what opens a body.
func signature(t string, outer, access bool) bool {
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
