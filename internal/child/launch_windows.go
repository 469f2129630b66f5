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

// Lifeline does nothing here: the system ends a job when its last handle is closed, and the
// gateway's death closes it.
func Lifeline() {}

// leash is how a running program is held: by the job that it and all its descendants are in.
type leash struct{ job *job }

// job is a handle that is not used again once it is closed, since its number may be.
type job struct {
	mu     sync.Mutex
	handle windows.Handle // 0 once closed
}

// term says that there is no such thing here.
func (l leash) term() bool { return false }

func (l leash) kill() {
	l.job.mu.Lock()
	defer l.job.mu.Unlock()
	if l.job.handle != 0 {
		_ = windows.TerminateJobObject(l.job.handle, 1)
	}
}

func (l leash) cut() {}

func (j *job) close() {
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
	pipes, err := plumb(out, in, in)
	if err != nil {
		return nil, errors.Join(err, windows.CloseHandle(handle))
	}
	program, err := startInJob(handle, path, spec, pipes.far)
	closeAll(pipes.far)
	if err != nil {
		closeAll(pipes.near)
		return nil, errors.Join(err, windows.CloseHandle(handle))
	}
	c := &Child{
		stdin: pipes.near[0], stdout: pipes.near[1], pid: program.Pid,
		leash: leash{&job{handle: handle}}, done: make(chan struct{}),
	}
	complaints := listen(pipes.near[2], spec.Stderr)
	go func() {
		c.finish(c.watch(program), complaints)
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

// startInJob starts the program suspended, so that it starts nothing before it is in the job.
func startInJob(job windows.Handle, path string, spec Spec, files []*os.File) (*os.Process, error) {
	program, err := os.StartProcess(path, spec.Command, &os.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: files,
		Sys: &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP},
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(assign(job, program.Pid), resume(program.Pid)); err != nil {
		_ = program.Kill()
		_, _ = program.Wait()
		return nil, fmt.Errorf("job object: %w", err)
	}
	return program, nil
}

func assign(job windows.Handle, pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	return errors.Join(windows.AssignProcessToJobObject(job, h), windows.CloseHandle(h))
}

// resume starts the one thread of a suspended process, which os.StartProcess does not tell us.
func resume(pid int) error {
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

// watch waits for the program's end and ends what it left behind.
func (c *Child) watch(program *os.Process) error {
	state, err := program.Wait()
	c.leash.kill()
	c.leash.job.close()
	if err != nil {
		return err
	}
	if !state.Success() {
		return errors.New(state.String())
	}
	return nil
}
