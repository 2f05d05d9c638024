/** The task that `scripts/run` carries out when it is given none. */
export const exampleTask = {
  /** Below this folder. */
  directory: 'seattle-weather',
  prompt: 'Analyze seattle-weather.csv and write a report with a chart',
} as const
