package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
)

// completePatience is how long a shell waits for the names to complete.
const completePatience = time.Second

// complete asks the daemon which backends there are, and offers what text makes
// of them. A daemon that does not answer offers nothing.
func (f *socketFlags) complete(ctx context.Context, prefix string, text func(pool, backend string) string) ([]string, cobra.ShellCompDirective) {
	socket, err := f.path()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if ctx == nil { // cobra gives none while it completes
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completePatience)
	defer cancel()
	s, err := admin.NewClient(socket).Status(ctx, false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list []string
	for _, p := range s.Pools {
		for _, b := range p.Backends {
			if name := text(p.Name, b.Name); name != "" && b.State != "removed" && strings.HasPrefix(name, prefix) {
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), cobra.ShellCompDirectiveNoFileComp
}
