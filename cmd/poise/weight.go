package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
)

func weightCommand() *cobra.Command {
	o := &operation{}
	o.run = func(ctx context.Context, c *admin.Client, t target, args []string) (admin.BackendState, string, error) {
		weight, err := parseWeight(args[0])
		if err != nil {
			return admin.BackendState{}, "", err
		}
		s, err := c.SetWeight(ctx, t.pool, t.backend, weight)
		if weight == nil {
			return s, fmt.Sprintf("%s has the weight of the file, %d", t, s.Weight), err
		}
		return s, fmt.Sprintf("%s has the weight %d (file: %d)", t, s.Weight, s.FileWeight), err
	}
	return o.command("weight POOL/BACKEND N|auto", "Give a backend another weight at run time",
		`Give a backend another weight, 0 to 65535, in place of the one in the configuration
file, which 'auto' restores. With 0 it gets no new connections.

It holds through reloads and restarts until the weight in the file is edited: then
the file counts.`, 1, func(args []string) error { _, err := parseWeight(args[0]); return err })
}

func parseWeight(arg string) (*int, error) {
	if arg == "auto" {
		return nil, nil
	}
	n, err := strconv.ParseUint(arg, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%q is no weight; write a number from 0 to 65535, or auto for that of the file", arg)
	}
	weight := int(n)
	return &weight, nil
}
