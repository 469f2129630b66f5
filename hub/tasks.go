package hub

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/rpc"
)

// A server that runs a call as a task names it by an id, by which the client asks for its state and its result. Several
// callers may share the connection to the server, which cannot tell them apart: a task belongs to the caller whose call
// made it, and to every other caller it is unknown.

const (
	maxTasks    = 1 << 15 // whose owners are remembered, in each generation
	tasksPrefix = "tasks/"
)

// taskOwners are the keys of the callers that made tasks, by server and task id.
type taskOwners struct {
	byTask *gencache.Cache[string, string]
}

func newTaskOwners() taskOwners { return taskOwners{gencache.New[string, string](maxTasks)} }

// noteTask remembers whose task a reply names, if it names one.
func (o taskOwners) noteTask(req *Request, server string, reply rpc.Reply) {
	if reply.IsError || !req.Plan.Gate.IsRequired() || !bytes.Contains(reply.Body, []byte(`"taskId"`)) { // few replies name one
		return
	}
	fields, err := jsonscan.ReadFields(reply.Body, reply.Result)
	if err != nil {
		return
	}
	raw, _ := fields.Get("task")
	for _, id := range []string{jsonscan.DecodeString(memberOf(raw, "taskId")), fields.Text("taskId")} {
		if id != "" {
			o.byTask.Put(server+"\x00"+id, req.Caller.Key(), 1)
		}
	}
}

// mayUseTask reports whether a request about tasks is about one of its caller's. A list would be of everybody's.
func (o taskOwners) mayUseTask(req *Request, server string) bool {
	if !strings.HasPrefix(req.Method, tasksPrefix) || !req.Plan.Gate.IsRequired() {
		return true
	}
	owner, known := o.byTask.Get(server + "\x00" + req.Params.Text("taskId"))
	return known && owner == req.Caller.Key()
}
