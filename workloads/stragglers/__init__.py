"""What makes a rank late, how lateness is injected and detected, and background traffic."""
