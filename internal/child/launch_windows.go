package child

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// RunIfShim does nothing here: Windows ends a job when its last handle is closed, and the gateway's death closes it.
func RunIfShim() {}

// control ends a running child by the job that it and all its descendants are in.
type control struct{ job *job }

// job guards a handle: once closed it is not used again, since its number may be.
type job struct {
	mu     sync.Mutex
	handle windows.Handle // 0 once closed
}

// terminate returns false: there is no TERM here.
func (c control) terminate() bool { return false }

func (c control) kill() {
	c.job.mu.Lock()
	defer c.job.mu.Unlock()
	if c.job.handle != 0 {
		_ = windows.TerminateJobObject(c.job.handle, 1)
	}
}

func (c control) abandon() {}

func (j *job) closeHandle() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = windows.CloseHandle(j.handle)
	j.handle = 0
}

func launch(path string, spec Spec) (*Child, error) {
	handle, err := newJob()
	if err != nil {
		return nil, fmt.Errorf("job object: %w", err)
	}
	p, err := openPipes(toChild, fromChild, fromChild)
	if err != nil {
		return nil, errors.Join(err, windows.CloseHandle(handle))
	}
	started, err := startInJob(handle, path, spec, p.theirs)
	closeAll(p.theirs)
	if err != nil {
		closeAll(p.ours)
		return nil, errors.Join(err, windows.CloseHandle(handle))
	}
	c := &Child{
		stdin: p.ours[0], stdout: p.ours[1], pid: started.Pid,
		control: control{&job{handle: handle}}, done: make(chan struct{}),
	}
	lines := readStderr(p.ours[2], spec.OnStderrLine)
	go func() {
		c.setEnded(c.awaitEnd(started), lines)
	}()
	return c, nil
}

// newJob makes a job whose processes end with its last handle.
func newJob() (windows.Handle, error) {
	handle, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(handle, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		return 0, errors.Join(err, windows.CloseHandle(handle))
	}
	return handle, nil
}

// startInJob starts the child suspended, so that it starts no process before it is in the job.
func startInJob(job windows.Handle, path string, spec Spec, files []*os.File) (*os.Process, error) {
	started, err := os.StartProcess(path, spec.Command, &os.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: files,
		Sys: &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP},
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(assignToJob(job, started.Pid), resumeProcess(started.Pid)); err != nil {
		_ = started.Kill()
		_, _ = started.Wait()
		return nil, fmt.Errorf("job object: %w", err)
	}
	return started, nil
}

func assignToJob(job windows.Handle, pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	return errors.Join(windows.AssignProcessToJobObject(job, h), windows.CloseHandle(h))
}

// resumeProcess starts the only thread of a suspended process, whose handle os.StartProcess does not return.
func resumeProcess(pid int) error {
	list, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(list) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(list, &entry); err == nil; err = windows.Thread32Next(list, &entry) {
		if entry.OwnerProcessID != uint32(pid) {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		return errors.Join(err, windows.CloseHandle(thread))
	}
	return err
}

// awaitEnd waits for the child's end and ends the processes it left behind.
func (c *Child) awaitEnd(started *os.Process) error {
	state, err := started.Wait()
	c.control.kill()
	c.control.job.closeHandle()
	if err != nil {
		return err
	}
	if !state.Success() {
		return errors.New(state.String())
	}
	return nil
}
