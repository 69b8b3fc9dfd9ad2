package daemon

import (
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/cert"
)

// A generation is what one configuration consists of besides its pools, which are a
// control.Set. It is immutable; a reload makes another one, in which what stays is the
// same object as before.
type generation struct {
	file     *config.File
	services []*service              // by name
	clients  map[string]*cert.Client // TLS towards the backends, by pool
}

// service returns the configured service of that name, or nil.
func (g *generation) service(name string) *service {
	for _, s := range g.services {
		if s.Name == name {
			return s
		}
	}
	return nil
}
