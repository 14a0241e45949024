package userns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// subidsLimit bounds the calls of getsubids.
const subidsLimit = 5 * time.Second

// NodeIDs returns the range of IDs that the administrator has set aside for the user kubelet (subuid(5)), or by default
// what maxPods need from 65536 on.
func NodeIDs(ctx context.Context, perPod uint32, maxPods int) (Range, error) {
	fallback := Range{First: 65536, Count: uint64(perPod) * uint64(maxPods)}
	tool, err := exec.LookPath("getsubids")
	if err != nil {
		return fallback, nil
	}
	ctx, cancel := context.WithTimeout(ctx, subidsLimit)
	defer cancel()
	uids, err := subids(ctx, tool)
	if err != nil || uids == "" {
		return fallback, err
	}
	gids, err := subids(ctx, tool, "-g")
	if err != nil {
		return Range{}, err
	}
	if uids != gids {
		return Range{}, fmt.Errorf("read subordinate IDs of user kubelet: users (%q) and groups (%q) must be the same",
			uids,
			gids)
	}
	r, err := parseSubids(uids)
	if err != nil {
		return Range{}, err
	}
	if r.Count < uint64(perPod)*uint64(maxPods) {
		return Range{}, fmt.Errorf("read subordinate IDs of user kubelet: %d IDs do not serve %d pods of %d", r.Count,
			maxPods, perPod)
	}
	return r, nil
}

// subids runs getsubids for the user kubelet. It returns an empty string if there is no such user.
func subids(ctx context.Context, tool string, flags ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, tool, append(flags, "kubelet")...)
	cmd.Stdout = &out
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("run %s: %w", tool, err)
	}
	return strings.TrimSpace(out.String()), nil
}

// parseSubids parses the output of getsubids: one line such as "0: kubelet 65536 7208960".
func parseSubids(text string) (Range, error) {
	fields := strings.Fields(text)
	if strings.Contains(text, "\n") || len(fields) != 4 || fields[1] != "kubelet" {
		return Range{}, fmt.Errorf("read subordinate IDs of user kubelet: want one range, got %q", text)
	}
	first, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("read subordinate IDs of user kubelet: %w", err)
	}
	count, err := strconv.ParseUint(fields[3], 10, 64)
	if err != nil {
		return Range{}, fmt.Errorf("read subordinate IDs of user kubelet: %w", err)
	}
	return Range{First: uint32(first), Count: count}, nil
}
