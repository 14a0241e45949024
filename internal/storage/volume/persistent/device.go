package persistent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// staging is whether a device is staged:
//
//	          Stage begins               Stage succeeds
//	unstaged ──────────────► maybeStaged ──────────────► staged
//	    ▲     Stage fails      │   ▲    Unstage begins,   │
//	    └──────────────────────┘   └──────────────────────┘
//	          Unstage succeeds           it disappears
//
// A device that an earlier agent left is maybeStaged. It is staged again before it is used, and so
// is a device whose staging or unstaging ended with an unknown outcome.
type staging int

const (
	unstaged    staging = iota // nothing of it is on the machine
	maybeStaged                // something of it may be
	staged                     // this process has staged it
)

// holdState is how a pod holds a device.
type holdState int

const (
	reserved  holdState = iota // it is not published to the pod yet
	published                  // it is published to the pod, or may be
)

// device is one volume of the node.
type device struct {
	plugin Plugin
	turn   chan struct{} // capacity 1; a semaphore for operations on the volume

	// Guarded by Volumes.mu:
	dev         Device
	holders     map[hold]holdState
	waiting     map[types.UID]time.Time // start of the wait for attachment
	staging     staging
	label       string             // of the holders
	stagedLabel string             // that it is staged with, or may be
	wantedLabel *string            // that the first holder would need if all volumes had labels
	counted     bool               // its label is counted
	refused     map[types.UID]bool // pods that need another label
	growth      growth

	migrated bool // it was staged as a migrated in-tree volume
}

// hold is one volume of one pod.
type hold struct {
	uid          types.UID
	plugin, name string
	block        bool
}

// deviceLocked returns the entry of a device, which it creates if necessary.
func (v *Volumes) deviceLocked(p Plugin, dev Device) *device {
	d := v.devices[dev.ID]
	if d == nil {
		d = &device{
			plugin:  p,
			turn:    make(chan struct{}, 1),
			dev:     dev,
			holders: map[hold]holdState{},
			waiting: map[types.UID]time.Time{},
			refused: map[types.UID]bool{},
		}
		v.devices[dev.ID] = d
	}
	return d
}

// take waits for other operations on the volume to end.
func (d *device) take(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another operation on volume %s: %w", d.dev.ID, ctx.Err())
	}
}

func (d *device) give() { <-d.turn }
