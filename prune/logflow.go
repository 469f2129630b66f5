package prune

import "math"

// What a bad line is worth to the lines around it falls with every line between, by what that line
// is. More comes down than goes up: programs say what went wrong and then the details.
const (
	downMore  = .96 // frames of a trace, carets, hunks
	downPlain = .85
	downBlank = .8
	downMark  = .4 // another test or command begins
	upPlain   = .7
	upBlank   = .7
	upMark    = .3
	bothSides = .7 // of the lesser, for a line with bad ones on both sides
)

// What stands before a command that failed is lifted, the last line the most.
const (
	beforeExit = 4.
	exitDecay  = .88
	exitWall   = .1 // what is left of it beyond where the command began
)

// aimDecay is how much of a word of the goal is left with every line further.
const aimDecay = .6

// spreadLog gives every line the best of what is said around it.
func spreadLog(ls []logLine) []float32 {
	out := make([]float32, len(ls))
	flow := float32(0)
	for i := range ls {
		flow = max(ls[i].own, flow*down(ls[i].role))
		out[i] = flow
	}
	flow = 0
	for i := len(ls) - 1; i >= 0; i-- {
		flow = max(ls[i].own, flow*up(ls[i].role))
		out[i] = max(out[i], flow) + bothSides*min(out[i], flow)
	}
	return out
}

func down(r logRole) float32 {
	switch r {
	case roleMore:
		return downMore
	case roleBlank:
		return downBlank
	case roleBegin, rolePass, roleFine, roleCommand, roleOpen, roleClose:
		return downMark
	}
	return downPlain
}

func up(r logRole) float32 {
	switch r {
	case roleBlank:
		return upBlank
	case roleBegin, rolePass, roleFine, roleCommand, roleOpen, roleClose:
		return upMark
	}
	return upPlain
}

// liftLog is what lines have for standing before a failed command, or before the end of the log.
func liftLog(ls []logLine) []float32 {
	out := make([]float32, len(ls))
	lift := float32(beforeExit)
	for i := len(ls) - 1; i >= 0; i-- {
		switch ls[i].role {
		case roleVerdict:
			lift = beforeExit
		case roleBlank:
		case roleFine, roleCommand, roleOpen, roleClose:
			lift *= exitWall
		default:
			lift *= exitDecay
			out[i] = lift
		}
	}
	return out
}

// aimLog is how many words of the goal a line has, rare ones more. What every question about a log
// says is left out: the words of failure have their weight already.
func aimLog(g *goal, x *index) []float32 {
	out := make([]float32, len(x.has))
	has, near := make([]float64, len(g.terms)), make([]float64, len(g.terms))
	for t, term := range g.terms {
		if !askWords[term.word] {
			has[t] = term.base * x.scarce(x.df[t])
			near[t] = x.share(t) * term.base * x.scarce(x.loose[t])
		}
	}
	worth := scales{has, near}
	for i := range out {
		out[i] = worth.worth(x.has[i], x.near[i])
	}
	return out
}

// scarce is 1 for what one line has and 0 for what all have.
func (x *index) scarce(df int) float64 {
	if df == 0 {
		return 0
	}
	rare := 1 - math.Log(float64(df))/math.Log(x.lines+1)
	return rare * rare
}

var askWords = set(`build builds test tests testing command commands fail fails failed failing failure failures
error errors exception ci cause broke break broken red wrong diagnose keyword keywords reason find log logs job
run exit exited code status went pipeline problem issue debug
échec échoue échoué erreur erreurs cause build test tests 失败 错误 原因 日志 为什 什么`)
