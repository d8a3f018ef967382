"""The labs for students as the command checks them: parts, points, and what is missing, one module a lab."""
