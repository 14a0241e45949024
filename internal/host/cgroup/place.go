package cgroup

import (
	"errors"
	"os"
)

// Place moves the agent to the cgroup agent, and other processes of the system to the cgroup system. With an empty name
// processes are not moved.
func Place(agent, system string) error {
	if agent == "" && system == "" {
		return nil
	}
	groups, err := Detect()
	if err != nil {
		return err
	}
	if agent != "" {
		err = groups.Join(agent, os.Getpid())
	}
	if system != "" {
		err = errors.Join(err, groups.Gather(system))
	}
	return err
}
