package eviction

import (
	"fmt"
	"testing"
)

func TestReclaims(t *testing.T) {
	shared, apart, split := Disks{}, Disks{Images: true}, Disks{Images: true, Containers: true}
	both, images, ended, none := "[dead containers unused images]", "[unused images]", "[dead containers]", "[]"
	for signals, want := range map[[2]Signal][3]string{
		{NodeFSAvailable, NodeFSInodesFree}:           {both, none, ended},
		{ImageFSAvailable, ImageFSInodesFree}:         {both, both, images},
		{ContainerFSAvailable, ContainerFSInodesFree}: {both, both, ended},
		{MemoryAvailable, AllocatableMemory}:          {none, none, none},
		{PIDAvailable, PIDAvailable}:                  {none, none, none},
	} {
		for i, d := range []Disks{shared, apart, split} {
			for _, s := range signals {
				if got := fmt.Sprint(reclaims(s, d)); got != want[i] {
					t.Errorf("%s, %+v: %s, want %s", s, d, got, want[i])
				}
			}
		}
	}
}
