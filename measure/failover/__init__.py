"""What a failure cost: recoveries read off a timeline beside their model, and the rows and tables of runs on racks."""
