package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/pins"
)

// maxApproveBytes bounds the body of an approval.
const maxApproveBytes = 4 << 20

// ApproveRequest is the body of POST /api/v1/pins/approve: the definitions that somebody saw and approves.
type ApproveRequest struct {
	Items []ApprovedItem `json:"items"`
}

// ApprovedItem is one definition, by its hash: what the server has since changed is not approved.
type ApprovedItem struct {
	Server string `json:"server"`
	Tool   string `json:"tool"` // "" for the instructions
	SHA256 string `json:"sha256"`
}

// PinRoutes mounts what is approved of the servers' tools: GET /api/v1/pins says what there is and what is held back, POST
// /api/v1/pins/approve approves some of it.
func PinRoutes(mux *http.ServeMux, report func(context.Context) pins.Report, approve func(context.Context, []pins.Approval) error, onError front.ErrorHandler) {
	mux.HandleFunc("GET /api/v1/pins", func(w http.ResponseWriter, r *http.Request) {
		writePins(w, report(r.Context()))
	})
	mux.HandleFunc("POST /api/v1/pins/approve", func(w http.ResponseWriter, r *http.Request) {
		var req ApproveRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxApproveBytes)).Decode(&req); err != nil {
			onError(w, r, fault.Wrap(fault.BadParams, "the body must be {\"items\": [{\"server\", \"tool\", \"sha256\"}]}", err))
			return
		}
		approvals, err := req.approvals(report(r.Context()))
		if err == nil {
			err = approve(r.Context(), approvals)
		}
		if err != nil {
			onError(w, r, fault.Wrap(fault.BadParams, err.Error(), err))
			return
		}
		writePins(w, report(r.Context()))
	})
}

// approvals finds the definitions in a report.
func (req ApproveRequest) approvals(report pins.Report) ([]pins.Approval, error) {
	if report.Mode != pins.ModeFirstUse {
		return nil, fault.New(fault.BadParams, "pins.mode is \""+report.Mode+"\": in mode \"lock\" 'ctxgate pin --approve' changes the file, and in mode \"off\" everything is served")
	}
	found := map[ApprovedItem]pins.Approval{}
	for _, s := range report.Servers {
		for _, item := range append([]pins.ItemReport{s.Instructions}, s.Tools...) {
			a, err := item.Approval(s.ID)
			if err == nil && item.Approvable() {
				found[ApprovedItem{s.ID, item.Name, item.SHA256}] = a
			}
		}
	}
	var out []pins.Approval
	for _, item := range req.Items {
		a, ok := found[item]
		if !ok {
			return nil, fault.New(fault.BadParams, "server "+fault.Clip(item.Server)+" has no such definition that waits for approval: it may have changed again")
		}
		out = append(out, a)
	}
	return out, nil
}

func writePins(w http.ResponseWriter, report pins.Report) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	_ = out.Encode(report) // fails only if the client is gone
}
