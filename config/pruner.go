package config

// settlePruner makes of the variables that the pruner's users know what a file would have said
// (P10). Our own variables win over them, as everywhere.
func (l *Loaded) settlePruner(env Env) Problems {
	var warnings Problems
	asked := l.Pruner.Asked
	if _, ours := env.Lookup("CTXGATE_MCP_PRUNER_BACKEND"); ours {
		l.Pruner.Asked = ""
	}
	if !l.Pruner.ChooseBackend() {
		warnings = append(warnings, Problem{File: "KIMI_PRUNING_BACKEND", Text: "there is no backend " + quote(asked) + ": it stays " + quote(l.Pruner.Backend)})
	}
	if _, ours := env.Lookup("CTXGATE_MCP_PRUNER_LISTEN"); ours {
		l.Pruner.Host, l.Pruner.Port = "", nil
	}
	l.Pruner.ComposeListen()
	return warnings
}
