package volumenode

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

// Agent is the volume code of an agent.
type Agent struct {
	*volume.Manager
	Persistent *persistent.Volumes
}

// NewAgent makes the volume code of an agent. The manager has the persistent volumes, and their root directory,
// guard and log. Required functions that are missing in the configurations are set to functions without an effect.
func NewAgent(p persistent.Config, m volume.Config) Agent {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Node == nil {
		p.Node = func() v1.NodeStatus { return v1.NodeStatus{} }
	}
	if p.OnInUse == nil {
		p.OnInUse = func() {}
	}
	if p.Again == nil {
		p.Again = func(types.UID) {}
	}
	if p.Recheck == 0 {
		p.Recheck = time.Hour
	}
	lasting := persistent.New(p)
	m.RootDir, m.Guard, m.Log, m.Kinds = p.RootDir, p.Guard, p.Log, lasting.Kinds()
	if m.Events == nil {
		m.Events = p.Events
	}
	if m.MaySwap == nil {
		m.MaySwap = func() (bool, error) { return false, nil }
	}
	if m.RecursiveReadOnly == nil {
		m.RecursiveReadOnly = func(*v1.Pod) bool { return false }
	}
	if m.OnChange == nil {
		m.OnChange = func(types.UID) {}
	}
	return Agent{Manager: volume.New(m), Persistent: lasting}
}

// Start runs the agent until stop is called. stop returns when no operation is under way.
func (a Agent) Start() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- a.Persistent.Run(ctx) }()
	go func() { done <- a.Manager.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-done, <-done)
	})
}
