package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/fakecri"
)

// unary forwards a call and calls the hook when it has ended.
func (p *Proxy) unary(ctx context.Context, req any, i *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	p.learn(req)
	call := p.begin(fakecri.Describe(path.Base(i.FullMethod), req, p.Sandbox, p.Container))
	res, err := p.answer(ctx, call, i.FullMethod, req)
	if err == nil {
		p.remember(req, res)
	}
	call = p.end(call, err)
	if p.opts.OnCall != nil {
		p.opts.OnCall(call, req, res)
	}
	return res, err
}

func (p *Proxy) begin(c fakecri.Call) fakecri.Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serial++
	p.open[c.Pod]++
	c.Seq, c.Start = p.serial, time.Now()
	return c
}

func (p *Proxy) end(c fakecri.Call, err error) fakecri.Call {
	c.End, c.Done = time.Now(), err == nil
	if err != nil {
		c.Code, c.Err = status.Code(err), status.Convert(err).Message()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[c.Pod]--; p.open[c.Pod] == 0 {
		delete(p.open, c.Pod)
	}
	return c
}

// answer forwards a call to the runtime, unless a hook answers it.
func (p *Proxy) answer(ctx context.Context, call fakecri.Call, method string, req any) (any, error) {
	switch q := req.(type) {
	case *cri.ExecSyncRequest:
		if p.opts.OnExec == nil {
			break
		}
		e := fakecri.Exec{
			Pod:         call.Pod,
			Container:   call.Container,
			ContainerID: q.GetContainerId(),
			Command:     q.GetCmd(),
		}
		if res, ok := p.opts.OnExec(e); ok {
			return scripted(ctx, time.Duration(q.GetTimeout())*time.Second, res)
		}
	case *cri.CreateContainerRequest:
		if p.opts.OnCreate == nil {
			break
		}
		changed := proto.Clone(q).(*cri.CreateContainerRequest) // the hook for calls gets it as it came
		p.opts.OnCreate(p.Sandbox(q.GetPodSandboxId()), changed.GetConfig())
		req = changed
	}
	_, res, err := messages(method)
	if err != nil {
		return nil, err
	}
	if err := p.conn.Invoke(ctx, method, req, res); err != nil {
		return nil, err
	}
	return res, nil
}

// scripted is the answer that a hook gives to an exec.
func scripted(ctx context.Context, timeout time.Duration, res fakecri.ExecResult) (*cri.ExecSyncResponse, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	t := time.NewTimer(res.After)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %v exceeded: %v",
			timeout, ctx.Err())
	case <-t.C:
	}
	if res.Err != nil {
		return nil, res.Err
	}
	return &cri.ExecSyncResponse{Stdout: []byte(res.Stdout), Stderr: []byte(res.Stderr), ExitCode: res.Code}, nil
}

// learn keeps the sandbox configuration in a request for a container: an agent that uses events can
// create containers before the runtime has answered the creation of their sandbox.
func (p *Proxy) learn(req any) {
	q, ok := req.(*cri.CreateContainerRequest)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sandboxes[q.GetPodSandboxId()] == nil && q.GetSandboxConfig() != nil {
		p.sandboxes[q.GetPodSandboxId()] = q.GetSandboxConfig()
	}
}

// remember keeps what was created, and drops what was removed.
func (p *Proxy) remember(req, res any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch q := req.(type) {
	case *cri.RunPodSandboxRequest:
		p.sandboxes[res.(*cri.RunPodSandboxResponse).GetPodSandboxId()] = q.GetConfig()
	case *cri.CreateContainerRequest:
		p.containers[res.(*cri.CreateContainerResponse).GetContainerId()] = container{
			sandbox: q.GetPodSandboxId(),
			config:  q.GetConfig(),
		}
	case *cri.RemoveContainerRequest:
		delete(p.containers, q.GetContainerId())
	case *cri.RemovePodSandboxRequest:
		delete(p.sandboxes, q.GetPodSandboxId())
		for id, c := range p.containers {
			if c.sandbox == q.GetPodSandboxId() {
				delete(p.containers, id)
			}
		}
	}
}

// stream forwards a request and the stream that answers it.
func (p *Proxy) stream(_ any, s grpc.ServerStream, i *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
	req, _, err := messages(i.FullMethod)
	if err != nil {
		return err
	}
	if err := s.RecvMsg(req); err != nil {
		return err
	}
	from, err := p.conn.NewStream(s.Context(), &grpc.StreamDesc{ServerStreams: true}, i.FullMethod)
	if err != nil {
		return err
	}
	if err := from.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // then RecvMsg has the cause
		return err
	}
	if err := from.CloseSend(); err != nil {
		return err
	}
	for {
		_, m, err := messages(i.FullMethod)
		if err != nil {
			return err
		}
		if err := from.RecvMsg(m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(m); err != nil {
			return err
		}
	}
}

// messages returns an empty request and an empty response of a method: /runtime.v1.Service/Method.
func messages(method string) (req, res proto.Message, err error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, nil, fmt.Errorf("find method %s: %w", name, err)
	}
	d, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, nil, fmt.Errorf("find method %s: it is none", name)
	}
	if req, err = empty(d.Input()); err != nil {
		return nil, nil, err
	}
	res, err = empty(d.Output())
	return req, res, err
}

func empty(d protoreflect.MessageDescriptor) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, fmt.Errorf("find message %s: %w", d.FullName(), err)
	}
	return t.New().Interface(), nil
}
