// Package view shows what the managers of CPUs, memory, devices and claims have allocated to containers, in the terms
// of podresources. It has no state.
package view
