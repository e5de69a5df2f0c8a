/** Reports that a setting does not go with others, under its key. */
export type Complain<Settings> = (key: keyof Settings & string, message: string) => void;
