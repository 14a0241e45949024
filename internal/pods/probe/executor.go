package probe

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/runtime/cri"
)

// RuntimeExecutor runs the commands of probes through the container runtime.
type RuntimeExecutor struct{ runtime *cri.Client }

// NewRuntimeExecutor makes a RuntimeExecutor.
func NewRuntimeExecutor(runtime *cri.Client) RuntimeExecutor { return RuntimeExecutor{runtime} }

// Exec runs a command in a container, for as long as the timeout, which the runtime counts in whole seconds.
func (e RuntimeExecutor) Exec(
	ctx context.Context, id string, command []string, timeout time.Duration,
) (output []byte, exitCode int32, timedOut bool, err error) {
	seconds := int64((timeout + time.Second - 1) / time.Second)
	resp, err := e.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: seconds})
	if cri.IsTimeout(err) {
		return nil, 0, true, nil
	}
	if err != nil {
		return nil, 0, false, cri.Cause(err)
	}
	return append(resp.Stdout, resp.Stderr...), resp.ExitCode, false, nil
}
